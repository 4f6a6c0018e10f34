"""The executors of one market, one for each card, and the leases that each computes."""

from collections import Counter
from collections.abc import Collection, Sequence

from gradmarket.compute.executor import Executor
from gradmarket.compute.task_run import Windowed
from gradmarket.market.terms import ReplicaId


class CardLanes:
    """A lease stays where it was put first, so that what it needs is fetched ahead there."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self.executors = tuple(executors)
        self._lanes: dict[ReplicaId, int] = {}

    def choose(self, replica: ReplicaId) -> int:
        """Returns the lane of a lease: the one with the fewest, if it has none yet."""
        if replica not in self._lanes:
            counts = Counter(self._lanes.values())
            self._lanes[replica] = min(range(len(self.executors)), key=lambda lane: counts[lane])
        return self._lanes[replica]

    def find_executor(self, replica: ReplicaId) -> Executor:
        return self.executors[self.choose(replica)]

    def retain(self, replicas: Collection[ReplicaId]) -> None:
        """Forgets all leases but these, which are still to be computed."""
        self._lanes = {replica: lane for replica, lane in self._lanes.items() if replica in replicas}

    @property
    def windowed(self) -> Windowed:
        """Returns the newest task with windows that any of them computed."""
        return max((executor.windowed for executor in self.executors), key=lambda one: one.at)
