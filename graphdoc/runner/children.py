"""Computing children, one per job, so that no job can read another's data in a child's memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphdoc.errors import RunnerFailed
from graphdoc.figures import Bound
from graphdoc.runner.arena import Arena
from graphdoc.runner.process import ChildProcess
from graphdoc.runner.settings import RunnerSettings

BOUNDS_KEPT: Final = 64
KEPT, MOST_KEPT = 2, 16
"""Jobs whose children stay warm: this many in any case, and up to this many while the memory that they hold permits."""
SHARE_KEPT: Final = 0.25
"""The share of a step's memory that idle children may hold beside it."""
CARD_FOR_EACH: Final = 8 * 2**30
"""Bytes of a card for each child on it: an idle one holds half a gibibyte, the driver's own."""


@dataclass
class Warm:
    """A child, and the digests of the documents loaded in it."""

    child: ChildProcess
    documents: list[str] = field(default_factory=list)
    holds: bool = False
    """Whether it may keep memory of its card for the next step."""

    def measure_bytes(self) -> int:
        """Returns the memory freed by its end: its own, and the part shared with this process."""
        try:
            lines = Path(f"/proc/{self.child.pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # on another system, or after its end
            lines = []
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        return private * 2**10 + self.child.arena.size

    def end(self) -> None:
        self.child.end()
        self.child.arena.close()


class JobChildren:
    """The current job's child, which gets the requests, and those of the jobs before it that memory permits."""

    def __init__(self) -> None:
        self._warm: dict[str, Warm] = {}
        self._bounds: dict[tuple[str, str], Bound] = {}
        self._job = ""
        self._command: Sequence[str] | None = None

    def turn(self, job: str, command: Sequence[str] | None = None) -> None:
        """Makes `job` the current one: its child, or a new one started by `command`, gets the requests from now on.

        Without a command it is the child that computes documents.
        """
        self._job, self._command = job, command

    @property
    def current(self) -> Warm | None:
        """Returns the current job's child if it runs."""
        return self._warm.get(self._job)

    def is_warm(self, job: str) -> bool:
        return job in self._warm

    def running(self, settings: RunnerSettings) -> Warm:
        """Returns the current job's child, started if needed. Raises RunnerFailed."""
        warm = self._warm.pop(self._job, None)
        if warm is None:
            self._make_room(settings)
            arena = Arena.create()
            try:
                warm = Warm(ChildProcess(settings, arena, self._command))
            except RunnerFailed:
                arena.close()
                raise
        self._warm[self._job] = warm
        if settings.device != "cpu":
            self._share_card()
        return warm

    def _make_room(self, settings: RunnerSettings) -> None:
        """Ends the least recently used children, to make room for one more."""
        on_card = settings.device != "cpu"
        most = max(KEPT, settings.memory_bytes // CARD_FOR_EACH) if on_card else MOST_KEPT
        left = settings.memory_bytes * SHARE_KEPT
        for place, (job, warm) in enumerate(reversed(list(self._warm.items())), 2):
            left -= 0 if on_card else warm.measure_bytes()
            if place > KEPT and (place > most or left < 0):
                self._warm.pop(job).end()

    def _share_card(self) -> None:
        """Makes other jobs' children free the memory that they keep of the card: the current one gets all free
        memory."""
        for job, warm in list(self._warm.items()):
            if job != self._job and warm.holds:
                try:
                    warm.child.ask({"do": "release"})
                except RunnerFailed:
                    self._warm.pop(job).end()
            warm.holds = job == self._job

    def store_bound(self, digest: str, bound: Bound) -> None:
        """Stores the most that a pass of this document costs in the current job."""
        for old in list(self._bounds)[: 1 - BOUNDS_KEPT]:
            del self._bounds[old]
        self._bounds[self._job, digest] = bound

    def limits(self, digest: str, settings: RunnerSettings) -> tuple[int, int]:
        """Returns the operations and bytes that a pass of this document may take: the stored bound, or the settings."""
        bound = self._bounds.get((self._job, digest))
        return (bound.operations, bound.peak_bytes) if bound else (settings.operations, settings.memory_bytes)

    def drop(self) -> None:
        """Ends the current job's child."""
        warm = self._warm.pop(self._job, None)
        if warm is not None:
            warm.end()

    def close(self) -> None:
        """Ends all children."""
        while self._warm:
            self._warm.popitem()[1].end()
