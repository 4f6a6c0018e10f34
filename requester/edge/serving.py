"""Configures uvicorn: with timeouts for slow clients, and without trusting what clients say about themselves."""

import socket

import uvicorn
from fastapi import FastAPI

from gradmarket.market.errors import Refused
from gradmarket.market.wire import KEPT_ALIVE
from gradmarket.requester.edge.slow_clients import ConnectionLimits, Connections, SlowClients, protocol
from gradmarket.requester.settings import RequesterSettings

KEEP_ALIVE_S = 8
"""Longer than clients keep idle connections (httpx: 5 s), or the server could close one that a client just uses."""


def listener(host: str, port: int) -> socket.socket:
    """Returns a socket bound to host and port (0: any free one). Raises Refused if that fails.

    The protocol is named as TCP, since asyncio sets TCP_NODELAY only then: an answer's headers and body are two writes,
    and the second would wait for the client's delayed acknowledgement of the first, 40 ms on Linux. TCP keep-alive
    keeps connections open while a poll waits for minutes, and detects clients that are gone without closing.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        remedy = "name another port with --port, or another address with --host"
        raise Refused(f"{host}:{port}: cannot listen there: {error.strerror or error}", remedy) from error
    return listening


def config(app: FastAPI, settings: RequesterSettings) -> uvicorn.Config:
    """Returns the server's configuration; api.callers reads forwarded headers, since uvicorn would trust loopback."""
    exempt = settings.exempt | settings.trusted_proxies
    limits = ConnectionLimits(settings.header_s, settings.silence_s, settings.address_connections, exempt)
    connections = Connections(limits)
    return uvicorn.Config(
        SlowClients(app, connections, settings.silence_s),
        http=protocol(connections),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.drain_s,
    )
