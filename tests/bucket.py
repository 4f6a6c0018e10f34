"""A real S3 server of its own process on the loopback, for tests."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.patience import PATIENCE_S, wait_until
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
            wait_until(lambda: _listens(server, port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGKILL)


def _listens(server: subprocess.Popen[bytes], port: int) -> bool:
    assert server.poll() is None, "the S3 server does not start"
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        return True
    return False
