"""Takes turns among the rounds that several threads of a process merge: quick jobs always have one of the threads.

Without turns slow jobs held all threads, and every other job waited for minutes of evaluation.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SPARE_THREADS: Final = 2
"""Threads beside a stage's own; the same number of jobs not known to be quick are merged at once."""
QUICK_S: Final = 2.0
"""Seconds that a quick job's merge takes at most, its evaluation included."""
FORGOTTEN: Final = 0.9
"""The factor by which each shorter duration lowers the stored one: some rounds are not evaluated, or
merged elsewhere.
"""
REMEMBERED: Final = 10_000
"""The most jobs whose duration is known."""


class MergeTurns:
    """Jobs that are slow or new take turns; one that has just had its turn leaves it to another that asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: OrderedDict[str, float] = OrderedDict()
        self._merging: set[str] = set()
        self._served: set[str] = set()
        """Slow jobs that had a turn since another one was refused its own."""
        self._refused: set[str] = set()

    @contextmanager
    def take(self, job: str) -> Iterator[bool]:
        """Yields whether the job may be merged now; if not, it asks again later."""
        with self._lock:
            may = self._begin(job)
        if not may:
            yield False
            return
        began = self._clock()
        try:
            yield True
        finally:
            with self._lock:
                self._end(job, self._clock() - began)

    def _is_quick(self, job: str) -> bool:
        return self._seconds.get(job, QUICK_S + 1) <= QUICK_S

    def _begin(self, job: str) -> bool:
        if job in self._merging:
            return False
        if not self._is_quick(job):
            if sum(not self._is_quick(one) for one in self._merging) >= SPARE_THREADS:
                self._refused.add(job)
                return False
            if job in self._served and self._refused:
                self._served.discard(job)
                self._refused.clear()  # those asked again by then, or have ended
                return False
            self._refused.discard(job)
            if not self._refused:
                self._served = set(self._merging)
            self._served.add(job)
        self._merging.add(job)
        return True

    def _end(self, job: str, seconds: float) -> None:
        self._merging.discard(job)
        self._seconds[job] = max(seconds, FORGOTTEN * self._seconds.get(job, 0.0))
        self._seconds.move_to_end(job)
        while len(self._seconds) > REMEMBERED:
            self._seconds.popitem(last=False)
