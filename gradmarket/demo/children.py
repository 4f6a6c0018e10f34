"""The processes that the demo starts and ends: it tracks each by its id and touches no other process."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.market.errors import MarketError

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
PREFIX: Final = "GRADMARKET_"
LAST_LINES: Final = 15
GRACE_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05


class DemoFailed(MarketError):
    """The demo did not work."""


@dataclass(frozen=True)
class DemoProcess:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def request_leave(self) -> None:
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)

    def left(self, within_s: float) -> int:
        """Returns its exit code; raises DemoFailed if it takes longer."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"{self.name} does not leave within {within_s:.0f} s; {self.last_words()}") from error

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return f"its log {self.log} ends with:\n" + "\n".join(lines)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defers SIGINT and SIGTERM to the end of the block, so that every started child is recorded."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in received[:1]:
            signal.raise_signal(first)


class DemoProcesses:
    """Starts each process in a session of its own, so that Ctrl-C reaches only the demo; `end` then ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[DemoProcess] = []

    def start(self, name: str, arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> DemoProcess:
        """Runs `python ARGUMENTS` with `settings` instead of the caller's own, and its output in NAME.log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        with log.open("wb") as output, defer_signals():
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment | dict(settings or {}),
                start_new_session=True,
            )
            child = DemoProcess(name, process, log)
            self._all.append(child)
        return child

    def check(self) -> None:
        """Raises DemoFailed if a process has ended without being asked to."""
        for child in self._all:
            if child.ended:
                raise DemoFailed(f"{child.name} ended with {child.process.returncode}; {child.last_words()}")

    def forget(self, child: DemoProcess) -> None:
        """Stops watching a process, which may then end or stay."""
        self._all.remove(child)

    def end(self) -> None:
        """Ends all remaining processes: sends SIGTERM twice, which makes a worker leave at once, then kills them."""
        for _ in range(2):
            for child in self._all:
                child.request_leave()
            time.sleep(LOOK_EVERY_S)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and not all(child.ended for child in self._all):
            time.sleep(LOOK_EVERY_S)
        for child in self._all:
            if not child.ended:
                child.process.kill()
            child.process.wait()
        self._all.clear()
