"""How uvicorn serves the application: with bounded patience, and believing nothing that a client says of itself."""

import socket

import uvicorn
from fastapi import FastAPI

from gradmarket.market.wire import KEPT_ALIVE
from gradmarket.requester.edge.slow_clients import OpenConnections, patient
from gradmarket.requester.settings import RequesterSettings

MAX_HEADER_BYTES = 16 * 1024
KEEP_ALIVE_S = 8
"""More than clients keep an idle connection (httpx 5 s): who closes first must not be who is just being asked."""


def listener(host: str, port: int) -> socket.socket:
    """Bound to host and port (0: any that is free). Raises OSError where that cannot be.

    Named as TCP, for asyncio sends without delay (TCP_NODELAY) on no other: an answer's headers and its body are two
    writes, and the second would wait for the client's delayed acknowledgement of the first, 40 ms on Linux. Its
    connections are kept alive while a poll waits for minutes, and a client that is gone without a word is noticed.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def config(app: FastAPI, settings: RequesterSettings) -> uvicorn.Config:
    """Forwarded headers are left to api.callers, which knows the trusted proxies; uvicorn would believe loopback."""
    crowd = OpenConnections(settings.address_connections, settings.exempt | settings.trusted_proxies)
    return uvicorn.Config(
        app,
        http=patient(settings.header_s, settings.silence_s, crowd),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.drain_s,
    )
