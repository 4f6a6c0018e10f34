"""Children that compute, one for each job: what lies or lay in a child's memory is one job's alone."""

from dataclasses import dataclass, field
from typing import Final

from gradmarket.market.errors import RunnerFailed
from gradmarket.market.model.figures import Bound
from gradmarket.runner.arena import Arena
from gradmarket.runner.process import ChildProcess
from gradmarket.runner.settings import RunnerSettings

BOUNDS_KEPT: Final = 64
KEPT: Final = 2
"""Jobs whose children stay warm; a child takes 1 to 3 seconds to start, and 200 MB while it waits."""


@dataclass
class Warm:
    """A child, and the digests of the documents that it has."""

    child: ChildProcess
    documents: list[str] = field(default_factory=list)

    def end(self) -> None:
        self.child.end()
        self.child.arena.close()


class JobChildren:
    """At most KEPT of them; the one of the job that was turned to last is asked."""

    def __init__(self) -> None:
        self._warm: dict[str, Warm] = {}
        self._bounds: dict[tuple[str, str], Bound] = {}
        self._job = ""

    def turn(self, job: str) -> None:
        """From here on this job's child is asked, or a new one."""
        self._job = job

    @property
    def current(self) -> Warm | None:
        """The job's child, if it runs."""
        return self._warm.get(self._job)

    def running(self, settings: RunnerSettings) -> Warm:
        """The job's child, started where there is none. Raises RunnerFailed."""
        warm = self._warm.pop(self._job, None) or Warm(_started(settings))
        self._warm[self._job] = warm
        for old in list(self._warm)[:-KEPT]:
            self._warm.pop(old).end()
        return warm

    def tell(self, digest: str, bound: Bound) -> None:
        """What a pass of this document costs in the job at most."""
        for old in list(self._bounds)[: 1 - BOUNDS_KEPT]:
            del self._bounds[old]
        self._bounds[self._job, digest] = bound

    def limits(self, digest: str, settings: RunnerSettings) -> tuple[int, int]:
        """Operations and bytes that a pass of this document may take: by what was told last, where it was."""
        told = self._bounds.get((self._job, digest))
        return (told.operations, told.peak_bytes) if told else (settings.operations, settings.memory_bytes)

    def drop(self) -> None:
        """Ends the job's child."""
        warm = self._warm.pop(self._job, None)
        if warm is not None:
            warm.end()

    def close(self) -> None:
        """Ends all of them."""
        while self._warm:
            self._warm.popitem()[1].end()


def _started(settings: RunnerSettings) -> ChildProcess:
    arena = Arena.create()
    try:
        return ChildProcess(settings, arena)
    except RunnerFailed:
        arena.close()
        raise
