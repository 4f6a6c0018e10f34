"""Queries about processes and connections that a test does not own, and a port for a process that it starts."""

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

import httpx

from tests.patience import wait_until

FREE: Final = range(12_000, 32_000)
"""Below the ports that Linux gives to whoever connects, which could take a free one before it is listened at."""


DRIP_S: Final = 0.2
"""Between two drops of a slow client."""
ESTABLISHED: Final = "01"
"""As the kernel lists the state of a connection."""


def free_port() -> int:
    """Returns a port of the loopback that nobody has, nor gets while nobody listens there."""
    while True:
        with suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", SystemRandom().choice(FREE)))
            return int(held.getsockname()[1])


def is_closed(made: socket.socket) -> bool:
    """Returns whether the other end of this connection, on this machine, has closed it; nothing is read from it."""
    try:
        ours, theirs = (f":{port:04X}" for port in (made.getsockname()[1], made.getpeername()[1]))
    except OSError:  # it was reset
        return True
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return not any(row[1].endswith(theirs) and row[2].endswith(ours) and row[3] == ESTABLISHED for row in rows)


def drip(made: socket.socket, drop: bytes = b"") -> bytes:
    """Sends `drop` again and again, until the other side ends the connection; returns its bytes."""
    heard = bytearray()
    made.settimeout(DRIP_S)

    def ended() -> bool:
        try:
            made.sendall(drop)
            got = made.recv(65536)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        heard.extend(got)
        return not got

    wait_until(ended, "the end of the connection")
    return bytes(heard)


def processor_ticks(pid: int) -> int:
    """Returns how long this process has computed, in ticks of the kernel's clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def answers(url: str) -> bool:
    """Returns whether a service there answers this address with 200."""
    try:
        return httpx.get(url, verify=False).status_code == 200
    except httpx.TransportError:
        return False


def is_running(pid: int) -> bool:
    """Returns whether this process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
