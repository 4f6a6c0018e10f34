"""Long bodies are read from the socket into blocks in place: a parser of HTTP copies them over and over.

h11 reads the headers, and a body as far as it comes with them. Once the application asks for a long body, `Rest` has
the connection until the declared length is there; for what follows it there is an h11 of its own.
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
"""Bytes of a body that is worth it."""
AHEAD: Final = 2
"""Full blocks that wait for the application before no more is read."""
Receive = Callable[[], Awaitable[Any]]


class Uploads(H11Protocol):
    """uvicorn's protocol, but that a long body reaches the application in blocks."""

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self.cycle.more_body and _length(self.headers) >= LONG:
            self.cycle.receive = _by_blocks(self, self.cycle)  # type: ignore[assignment, method-assign]

    def data_received(self, data: bytes) -> None:
        if self._begun_anew() and not self.cycle.response_complete:  # it sends requests without awaiting the answers
            self.conn.receive_data(data)
            self.flow.pause_reading()
        else:
            super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._begun_anew() and not self.transport.is_closing():
            self.handle_events()

    def begin_anew(self) -> None:
        """What h11 is given from now on belongs to the next request; the answer to this one goes through its own."""
        self.conn = h11.Connection(h11.SERVER, self.config.h11_max_incomplete_event_size or LONG)

    def moved(self) -> None:
        """More of a long body has come."""
        self._unset_keepalive_if_required()

    def _begun_anew(self) -> bool:
        return self.cycle is not None and self.conn is not self.cycle.conn


class Rest(asyncio.BufferedProtocol):
    """Has the connection of `http` while what is `left` of the body of `cycle` comes; after the answer all is dropped.

    A block is made when its first byte is due: who sends nothing takes no memory.
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
        """The next full block, empty where there is none yet."""
        block = self._full.popleft() if self._full else b""
        if self._full:
            self._cycle.message_event.set()
        return block

    @property
    def more(self) -> bool:
        return bool(self._left or self._full)


def _by_blocks(http: Uploads, cycle: RequestResponseCycle) -> Receive:
    """The cycle's `receive`, whose body is the next block."""
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
    """As h11 has found it to be declared; zero where the body comes in chunks, or there is none."""
    told = dict(headers)
    return 0 if b"transfer-encoding" in told else int(told.get(b"content-length", 0))
