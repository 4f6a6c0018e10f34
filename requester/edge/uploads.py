"""Reads long bodies from the socket directly into blocks, since an HTTP parser copies them several times.

h11 parses the headers and the part of the body that comes with them. Once the application reads a long body, `Rest`
takes over the connection until the declared length has come; the next request gets a new h11 connection.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import h11
import numpy as np
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gradmarket.requester.api.streams import BLOCK

LONG: Final = 1 << 18
"""Bytes of a body from which on it is read this way."""
AHEAD: Final = 2
"""Full blocks that may wait for the application; then reading pauses."""
Receive = Callable[[], Awaitable[Any]]


class Uploads(H11Protocol):
    """uvicorn's protocol, with long bodies given to the application in blocks."""

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self.cycle.more_body and _length(self.headers) >= LONG:
            self.cycle.receive = _by_blocks(self, self.cycle)  # type: ignore[assignment, method-assign]

    def data_received(self, data: bytes) -> None:
        if self._begun_anew() and not self.cycle.response_complete:  # the client pipelines requests
            self.conn.receive_data(data)
            self.flow.pause_reading()
        else:
            super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._begun_anew() and not self.transport.is_closing():
            self.handle_events()

    def begin_anew(self) -> None:
        """Starts a new h11 connection for the next request; the answer to this one uses the old h11 connection."""
        self.conn = h11.Connection(h11.SERVER, self.config.h11_max_incomplete_event_size or LONG)

    def moved(self) -> None:
        """Called when more of a long body has come."""
        self._unset_keepalive_if_required()

    def _begun_anew(self) -> bool:
        return self.cycle is not None and self.conn is not self.cycle.conn


class Rest(asyncio.BufferedProtocol):
    """Reads the `left` bytes of the body of `cycle` in place of `http`; drops them once the answer is complete.

    A block is allocated only when its first byte is read, so that a silent client takes no memory.
    """

    def __init__(self, http: Uploads, cycle: RequestResponseCycle, left: int) -> None:
        self._http, self._cycle, self._left = http, cycle, left
        self._filled = len(cycle.body)
        self._block = np.empty(max(BLOCK, self._filled + 1), np.uint8)
        self._block[: self._filled] = cycle.body
        cycle.body = bytearray()
        self._full: deque[memoryview] = deque()
        self.connection_lost = http.connection_lost  # type: ignore[method-assign]
        self.pause_writing = http.pause_writing  # type: ignore[method-assign]
        self.resume_writing = http.resume_writing  # type: ignore[method-assign]
        http.begin_anew()
        http.transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self._filled == len(self._block):
            self._block, self._filled = np.empty(BLOCK, np.uint8), 0
        return self._block.data[self._filled : self._filled + self._left]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._left -= nbytes
        self._http.moved()
        if self._filled == len(self._block) or not self._left:
            self._full.append(self._block.data[: self._filled])
            self._filled = len(self._block)
            self._cycle.message_event.set()
        if not self._left:
            self._cycle.more_body = False
            self._http.transport.set_protocol(self._http)
        if self._cycle.response_complete:
            self._full.clear()
        elif len(self._full) >= AHEAD:
            self._http.flow.pause_reading()

    def take(self) -> memoryview | bytes:
        """Returns the next full block, or empty bytes if there is none yet."""
        block = self._full.popleft() if self._full else b""
        if self._full:
            self._cycle.message_event.set()
        return block

    @property
    def more(self) -> bool:
        return bool(self._left or self._full)


def _by_blocks(http: Uploads, cycle: RequestResponseCycle) -> Receive:
    """Returns a `receive` for the cycle that gives the next block as body."""
    own, rest = cycle.receive, None

    async def receive() -> Any:
        nonlocal rest
        if rest is None and cycle.more_body and not cycle.disconnected and not cycle.response_complete:
            rest = Rest(http, cycle, _length(cycle.scope["headers"]) - len(cycle.body))
        message = await own()
        if rest is None or message["type"] != "http.request":
            return message
        return {**message, "body": rest.take(), "more_body": rest.more}

    return receive


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Returns the content length that h11 has validated; zero for a chunked body or none."""
    by_name = dict(headers)
    return 0 if b"transfer-encoding" in by_name else int(by_name.get(b"content-length", 0))
