"""HTTP/1.1 with timeouts: closes connections of clients that send nothing, send too slowly, or do not read the answer.

uvicorn limits only the pause between two requests. A "slow loris" attack holds connections by sending a header or a
body byte by byte, or by never reading the answer, all without a token.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gradmarket.requester.api.callers import Network, among, subnet
from gradmarket.requester.edge.downloads import Downloads
from gradmarket.requester.edge.uploads import Uploads

HEADER_LINES: Final = 100
"""Header lines of a request, at most: each costs its reader more than its bytes."""


class OpenConnections:
    """Counts the connections of each address: at most `most`, except for addresses in `exempt`."""

    def __init__(self, most: int, exempt: frozenset[Network]) -> None:
        self._most, self._exempt = most, exempt
        self._open = Counter[str]()

    def enter(self, transport: asyncio.Transport) -> str | None:
        """Counts a connection; returns the name it is counted under, or None if the address has too many."""
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        name = "" if among(host, self._exempt) else subnet(host)
        if name and self._open[name] >= self._most:
            return None
        self._open[name] += 1
        return name

    def leave(self, name: str) -> None:
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


def patient(header_s: float, silence_s: float, crowd: OpenConnections) -> type[H11Protocol]:
    """Returns a protocol class for uvicorn that closes the connections of slow clients.

    A client must send a request's headers within `header_s` of connecting or of the answer before, in at most
    HEADER_LINES. Then no `silence_s` may pass without a byte of the body, or with 64 KiB of the answer unread. A
    connection over the limit of `crowd` is closed at once.
    """
    return type("Patient", (PatientProtocol,), {"header_s": header_s, "silence_s": silence_s, "crowd": crowd})


class PatientProtocol(Uploads, Downloads):
    header_s = 10.0
    silence_s = 30.0
    crowd = OpenConnections(1, frozenset())

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._counted: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._counted = self.crowd.enter(transport)
        if self._counted is None:
            transport.abort()
            return
        self._since = self.loop.time()
        self._arm(self.header_s, self._look)

    def data_received(self, data: bytes) -> None:
        if self._comes_body():
            self._since = self.loop.time()
        super().data_received(data)
        if not self._waits():
            self._disarm()
        elif self._timer is None:
            self._since = self.loop.time()
            self._arm(self.silence_s, self._look)

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            head = self.conn.trailing_data[0].partition(b"\r\n\r\n")[0]
            if head.count(b"\n") > HEADER_LINES:
                self._close()
                return
        super().handle_events()

    def moved(self) -> None:
        if self._comes_body():
            self._since = self.loop.time()
        super().moved()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        if self._waits():
            self._arm(self.header_s, self._look)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm(self.silence_s, self._close)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._disarm()
        if self._waits():
            self._arm(self.silence_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._counted is not None:
            self.crowd.leave(self._counted)
        super().connection_lost(exc)

    def _comes_body(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body

    def _waits(self) -> bool:
        """Returns whether the server waits for the client to send."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        """Closes the connection if the client's deadline is over; sets a new one if it sent something meanwhile."""
        patience = self.silence_s if self._comes_body() else self.header_s
        left = self._since + patience - self.loop.time()
        if self.flow.read_paused and self._comes_body():
            left = patience  # it is the server that does not read
        if left > 0:
            self._arm(left, self._look)
        else:
            self._close()

    def _close(self) -> None:
        self.transport.abort()

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
