"""Batch growth: the number of tasks of each round where rounds grow, and of all rounds before it.

A larger batch has the effect of a smaller rate (Smith et al. 2018, "Don't Decay the Learning Rate, Increase the Batch
Size"): its tasks are computed side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


class Grown(Protocol):
    """From round `round` on, each round has `tasks` tasks."""

    @property
    def round(self) -> int: ...

    @property
    def tasks(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EqualRounds:
    """Rounds of equally many tasks, from `first` to below `end`; `before`: the tasks of all earlier rounds."""

    first: int
    end: int
    before: int
    tasks: int

    def before_round(self, number: int) -> int:
        """Returns the number of tasks of the rounds before this one, which is in this stage or at its end."""
        return self.before + (number - self.first) * self.tasks


@dataclass(frozen=True, slots=True)
class RoundSizes:
    """The numbers of tasks of a job's rounds; at least one stage, each beginning where the one before it ends."""

    stages: tuple[EqualRounds, ...]

    def of(self, number: int) -> int:
        """Returns the number of tasks of a round; rounds after the last are like it."""
        return self._find_stage(number).tasks

    def before(self, number: int) -> int:
        """Returns the number of tasks of all rounds before this one."""
        return self._find_stage(number).before_round(number)

    @property
    def all(self) -> int:
        """The number of tasks of all rounds."""
        return self.before(self.stages[-1].end)

    @property
    def most(self) -> int:
        """The number of tasks of the largest round."""
        return self.stages[-1].tasks

    def _find_stage(self, number: int) -> EqualRounds:
        return next(stage for stage in reversed(self.stages) if stage.first <= number)


def build_round_sizes(tasks: int, growth: Sequence[Grown], rounds: int) -> RoundSizes:
    """Returns the sizes of a job's rounds, of which the first have `tasks` tasks."""
    ends = [*(grown.round for grown in growth), rounds]
    stages = [EqualRounds(0, ends[0], 0, tasks)]
    for grown, end in zip(growth, ends[1:], strict=True):
        stages.append(EqualRounds(grown.round, end, stages[-1].before_round(grown.round), grown.tasks))
    return RoundSizes(tuple(stages))


def find_growth_fault(tasks: int, growth: Sequence[Grown], rounds: int, least: int | None) -> str:
    """Returns why a job whose rounds close with `least` tasks (None: with all) cannot grow so; empty where it can."""
    if growth and least is not None:
        return "min_tasks is of every round: leave out one of the two"
    for (earlier, fewer), (later, more) in pairwise([(0, tasks), *((grown.round, grown.tasks) for grown in growth)]):
        if later <= earlier:
            return "name rounds in ascending order, the first one above 0"
        if more <= fewer:
            return f"round {later} has {more} tasks, and the rounds before it have {fewer}: name more"
    if growth and growth[-1].round >= rounds:
        return f"the job has {rounds} rounds, counted from 0: name earlier ones"
    return ""
