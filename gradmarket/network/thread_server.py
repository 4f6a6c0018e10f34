"""A small service in a thread of this process: a worker's page, or a hearing."""

import errno
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette

from gradmarket.market.errors import Conflict

AT_ONCE: Final = 256
"""Connections; more are refused."""


@contextmanager
def serve_in_thread(
    app: Starlette,
    host: str,
    port: int,
    headers: Sequence[tuple[str, str]] = (),
    at_once: int = AT_ONCE,
    option: str = "--port",
) -> Iterator[str]:
    """Serves until the `with` block ends; yields the address. Raises Conflict where the port cannot be had."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise Conflict(f"{host} is no address of this machine", "name one that is with --host") from None
            raise Conflict(f"port {port} is not free: {error.strerror}", f"name another one with {option}") from error
        listening.listen()
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                headers=list(headers),
                log_config=None,
                access_log=False,
                limit_concurrency=at_once,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, args=([listening],), name="serving", daemon=True)
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
