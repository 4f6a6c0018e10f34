"""HTTP/1.1 with bounded patience: who opens a connection and says nothing, little, or does not listen is let go.

uvicorn bounds only the pause between two requests. "Slow loris" keeps connections by sending a header a byte at a time,
a body likewise, or by never reading the answer; none of it needs a token.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from gradmarket.requester.edge.downloads import Downloads
from gradmarket.requester.edge.uploads import Uploads


def patient(header_s: float, silence_s: float) -> type[H11Protocol]:
    """A protocol for uvicorn, for clients that send a request's headers within `header_s` of the connection or of the
    answer before, and then let no `silence_s` pass without a byte of its body, or with 64 KiB of the answer unread."""
    return type("Patient", (PatientProtocol,), {"header_s": header_s, "silence_s": silence_s})


class PatientProtocol(Uploads, Downloads):
    header_s = 10.0
    silence_s = 30.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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
        super().connection_lost(exc)

    def _comes_body(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body

    def _waits(self) -> bool:
        """Whether it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        """Lets go a client whose time is over; one that sent something meanwhile has a new deadline."""
        patience = self.silence_s if self._comes_body() else self.header_s
        left = self._since + patience - self.loop.time()
        if self.flow.read_paused and self._comes_body():
            left = patience  # it is we who do not read
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
