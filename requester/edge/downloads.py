"""Sends whole files by sendfile, from the page cache to the socket, without copying them through this process.

Adds ASGI's `http.response.pathsend` to uvicorn; Starlette's FileResponse uses it if the server offers it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import h11
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PIECE: Final = 1 << 20
"""Bytes that a client must take within `silence_s`."""
OFFERED: Final = "http.response.pathsend"
Send = Callable[[Any], Awaitable[None]]


class Downloads(H11Protocol):
    silence_s = 30.0

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.cycle.scope["extensions"] = {OFFERED: {}}
            self.cycle.send = _by_file(self, self.cycle)  # type: ignore[assignment, method-assign]


class _Piece:
    """Stands for bytes in h11, which needs only their length."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


def _by_file(http: Downloads, cycle: RequestResponseCycle) -> Send:
    own = cycle.send

    async def send(message: Any) -> None:
        if message["type"] == OFFERED:
            file = await run_in_threadpool(_opened, Path(message["path"]))
            try:
                await _send_file(http, cycle, file)
            finally:
                file.close()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        if not (cycle.disconnected or http.transport.is_closing()):
            await own(message)

    return send


def _opened(path: Path) -> BinaryIO:
    """Opens the file, and has the kernel read it ahead, so that sending seldom waits for the disk."""
    file = path.open("rb")
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    return file


async def _send_file(http: Downloads, cycle: RequestResponseCycle, file: BinaryIO) -> None:
    """Sends the file piece by piece; aborts the connection of a client that does not take a piece in time."""
    left, start = os.fstat(file.fileno()).st_size, 0
    while left and not (cycle.disconnected or http.transport.is_closing()):
        count = min(PIECE, left)
        cycle.conn.send_with_data_passthrough(h11.Data(data=_Piece(count)))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(http.silence_s):
                await http.loop.sendfile(http.transport, file, start, count)
        except (OSError, RuntimeError):  # a timeout is an OSError; a transport closed meanwhile raises RuntimeError
            http.transport.abort()
        left, start = left - count, start + count
