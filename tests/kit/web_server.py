"""Servers of a test's own on this machine, which log nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Quiet:
    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@contextmanager
def serving_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yields the address of a server whose requests the handler answers, each in a thread."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type(handler.__name__, (_Quiet, handler), {}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def send_page(request: BaseHTTPRequestHandler, page: bytes) -> None:
    request.send_response(200)
    request.send_header("Content-Length", str(len(page)))
    request.end_headers()
    request.wfile.write(page)
