"""The service's clock: the machine's, but without its steps. Deadlines, suspensions and claims are stored by it.

A wrong step is mostly corrected by the machine within minutes; one that stays for ADOPT_S is followed, and times stored
ahead of it are brought back (store.stored_times).
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

STEP_S: Final = 5.0
"""Seconds between two readings that no slewing explains: NTP corrects 0.5 ms a second at most (ntpd's 500 ppm)."""
ADOPT_S: Final = 900.0

log = structlog.get_logger("gradmarket.clock")


def since_boot() -> float:
    """Returns seconds that cannot be set, and that go on while the machine sleeps, where the system counts those."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Calling it returns Unix seconds. `wall` may step, `steady` only advances."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = since_boot) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._offset = wall() - steady()
        self._stepped: tuple[float, float] | None = None
        """The offset that the machine's clock stepped to, and when."""
        self._behind = True

    def __call__(self) -> float:
        with self._lock:
            steady = self._steady()
            offset = self._wall() - steady
            if abs(offset - self._offset) <= STEP_S:
                self._adopt_offset(offset)
            elif self._stepped is None or abs(offset - self._stepped[0]) > STEP_S:
                self._stepped = (offset, steady)
                log.warning(
                    "the machine's clock stepped; the service keeps its own", by_s=self._compute_deviation(offset)
                )
            elif steady - self._stepped[1] >= ADOPT_S:
                log.warning("the machine's clock stays; the service follows it", by_s=self._compute_deviation(offset))
                self._behind |= offset < self._offset
                self._stepped, self._offset = None, offset
            return steady + self._offset

    def after_fall(self, mend: Callable[[], object]) -> None:
        """Calls `mend` once after the start and after each time that it went back: stored times may be ahead.

        Where `mend` raises, the next call tries again.
        """
        with self._lock:
            behind, self._behind = self._behind, False
        try:
            if behind:
                mend()
                behind = False
        finally:
            with self._lock:
                self._behind |= behind

    def _adopt_offset(self, offset: float) -> None:
        if self._stepped is not None:
            log.warning(
                "the machine's clock stepped back; no time was lost", after_s=self._compute_deviation(self._stepped[0])
            )
        self._stepped, self._offset = None, offset

    def _compute_deviation(self, offset: float) -> float:
        return round(offset - self._offset, 1)
