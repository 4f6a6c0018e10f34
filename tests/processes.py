"""What a test asks of processes that it does not own, and a port for those that it starts."""

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

FREE: Final = range(12_000, 32_000)
"""Below the ports that Linux gives to whoever connects, which could take a free one before it is listened at."""


def free_port() -> int:
    """Returns a port of the loopback that nobody has, nor gets while nobody listens there."""
    while True:
        with suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", SystemRandom().choice(FREE)))
            return int(held.getsockname()[1])


def is_running(pid: int) -> bool:
    """Returns whether this process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
