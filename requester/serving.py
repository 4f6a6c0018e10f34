"""Configures uvicorn: with timeouts for slow clients, and without trust in clients' headers about themselves.

OwnPath strips the path of the service's public address where a proxy passes it on: routes are at the root.
"""

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from gradmarket.market.errors import Refused
from gradmarket.market.wire.poll import KEPT_ALIVE
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network import own_header
from gradmarket.network.environment import is_loopback
from gradmarket.pages import NOSNIFF
from requester.feature import Feature
from requester.settings import RequesterSettings

KEEP_ALIVE_S = 8
"""Longer than clients keep idle connections (httpx: 5 s), or the server could close one that a client just uses."""

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Hosts that mean every address of this machine, and the one under which it reaches itself."""


def open_listener(host: str, port: int) -> socket.socket:
    """Returns a socket bound to host and port (0: any free one); `::` takes IPv4 too. Raises Refused if that fails.

    The protocol is named as TCP, since asyncio sets TCP_NODELAY only then: an answer's headers and body are two writes,
    and the second would wait for the client's delayed acknowledgement of the first, 40 ms on Linux. TCP keep-alive
    keeps connections open while a poll waits for minutes, and detects clients that are gone without closing.
    """
    listening = None
    try:
        places = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = places[0]
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listening.bind(place)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        remedy = "name another port with --port, or another address with --host"
        why = getattr(error, "strerror", None) or error
        raise Refused(f"{_format_netloc(host, port)}: cannot listen there: {why}", remedy) from error
    return listening


def own_url(host: str, port: int) -> str:
    """Returns the address under which this machine reaches the listener: loopback's where `host` is any address."""
    return f"http://{_format_netloc(EVERYWHERE.get(host.strip('[]'), host), port)}"


def _format_netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def build_server_config(app: FastAPI, settings: RequesterSettings, features: Iterable[Feature]) -> uvicorn.Config:
    """Returns the server's configuration; api.callers reads forwarded headers, since uvicorn would trust loopback."""
    guards = (feature.guard_connections(app, settings) for feature in features)
    guarded, protocol = next((guard for guard in guards if guard is not None), (app, "auto"))
    return uvicorn.Config(
        guarded,
        http=protocol,
        ws="none",
        headers=[*NOSNIFF, own_header()],
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.drain_s,
    )


class OwnPath:
    """`path` has no slash at its end. Requests without it come from a proxy that strips it, or from this machine."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._path and scope["path"].startswith(f"{self._path}/"):
            raw = scope.get("raw_path") or b""
            scope = {**scope, "path": scope["path"].removeprefix(self._path)}
            scope["raw_path"] = raw.removeprefix(self._path.encode())
        await self._app(scope, receive, send)


def build_join_command(url: str, facts: ChainFacts) -> str:
    """Returns the worker's command for a machine that reaches the service under `url`.

    A local chain's node is reached through the service's door, unless its own address, which is on loopback, is near.
    """
    elsewhere = f" --rpc {url}/chain" if facts.rpc and not is_loopback(urlsplit(url).hostname or "") else ""
    return f"gradmarket worker run --market {url}{elsewhere}"
