"""Children that compute, one for each job: what lies or lay in a child's memory is one job's alone."""

from dataclasses import dataclass, field
from typing import Final

from gradmarket.market.errors import RunnerFailed
from gradmarket.runner.arena import Arena
from gradmarket.runner.process import Child
from gradmarket.runner.settings import RunnerSettings

KEPT: Final = 2
"""Jobs whose children stay warm; a child takes 1 to 3 seconds to start, and 200 MB while it waits."""


@dataclass
class Warm:
    """A child, and the digests of the documents that it has."""

    child: Child
    documents: list[str] = field(default_factory=list)

    def end(self) -> None:
        self.child.end()
        self.child.arena.close()


class Children:
    """At most KEPT of them; the one of the job that was turned to last is asked."""

    def __init__(self) -> None:
        self._warm: dict[str, Warm] = {}
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

    def drop(self) -> None:
        """Ends the job's child."""
        warm = self._warm.pop(self._job, None)
        if warm is not None:
            warm.end()

    def close(self) -> None:
        """Ends all of them."""
        while self._warm:
            self._warm.popitem()[1].end()


def _started(settings: RunnerSettings) -> Child:
    arena = Arena.create()
    try:
        return Child(settings, arena)
    except RunnerFailed:
        arena.close()
        raise
