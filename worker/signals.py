"""The first SIGTERM or SIGINT asks the worker to finish and leave, the second to leave now."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


class LeaveSoon(BaseException):
    """The first signal, where nothing is in flight: a poll that only waits is broken off."""


class LeaveNow(BaseException):
    """The second signal."""


class Signals:
    def __init__(self) -> None:
        self._asked = Event()
        self._waiting = False
        self.at_once = False
        """Nothing is waited for any more."""

    def install(self) -> None:
        """From the main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    @property
    def leaving(self) -> bool:
        return self._asked.is_set()

    def leave(self) -> None:
        """As if the first signal had come."""
        self._asked.set()

    def pause(self, seconds: float) -> None:
        """Sleeps, less long when asked to leave meanwhile."""
        if not self.leaving:
            self._asked.wait(seconds)
        else:
            Event().wait(min(seconds, 0.5))

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within it the first signal raises LeaveSoon."""
        self._waiting = True
        try:
            if self.leaving:
                raise LeaveSoon
            yield
        finally:
            self._waiting = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.leaving:
            raise LeaveNow
        self._asked.set()
        if self._waiting:
            raise LeaveSoon
