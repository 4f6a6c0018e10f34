"""A real S3 server of its own process on the loopback, for tests."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.processes import free_port

KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret of someone"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Its address."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | KEYS
    ) as server:
        try:
            _wait(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGKILL)


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the S3 server does not start")
