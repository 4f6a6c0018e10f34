"""The first SIGTERM or SIGINT asks the worker to finish and leave, the second to leave now."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


class LeaveSoon(BaseException):
    """Raised by the first signal to interrupt a poll while nothing is in flight."""


class LeaveNow(BaseException):
    """Raised by the second signal."""


class Signals:
    def __init__(self) -> None:
        self._asked = Event()
        self._waiting = False
        self.at_once = False
        """Whether to leave without waiting for anything."""

    def install_handlers(self) -> None:
        """Installs the handlers; call it in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle_signal)

    @property
    def leaving(self) -> bool:
        return self._asked.is_set()

    def leave(self) -> None:
        """Acts like the first signal."""
        self._asked.set()

    def pause(self, seconds: float) -> None:
        """Sleeps; wakes early at the first signal."""
        if not self.leaving:
            self._asked.wait(seconds)
        else:
            Event().wait(min(seconds, 0.5))

    @contextmanager
    def allow_interruption(self) -> Iterator[None]:
        """Makes the first signal raise LeaveSoon within the block."""
        self._waiting = True
        try:
            if self.leaving:
                raise LeaveSoon
            yield
        finally:
            self._waiting = False

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.leaving:
            raise LeaveNow
        self._asked.set()
        if self._waiting:
            raise LeaveSoon
