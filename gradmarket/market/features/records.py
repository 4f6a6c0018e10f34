"""Estimates the hourly pay of a worker that joins a job, by the measurements of its newest rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Final

WINDOW_S: Final = 3600.0
"""Seconds after which a closed round no longer counts."""
ROUNDS: Final = 10
"""Newest rounds that are measured."""


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """One worker's paid answer of a round: its units, and the seconds from its lease to its pay."""

    worker: str
    units: int
    seconds: float


def estimate_hourly_pay(lasted: Sequence[float], paid: Sequence[PaidAnswer]) -> float | None:
    """Returns the units an hour of a worker that joins those that were `paid`, in rounds that `lasted` these seconds.

    A round's answers are shared among all workers, in turns of one answer each. One more worker shortens a round by the
    turns that it saves, and where there are no more answers than workers, it saves none and has its share of the
    waiting. None where no round has closed or nobody was paid.
    """
    if not lasted or not paid:
        return None
    workers, answers = len({one.worker for one in paid}), len(paid) / len(lasted)
    turn_s, round_s = median(one.seconds for one in paid), median(lasted)
    turns, fewer = ceil(answers / workers), ceil(answers / (workers + 1))
    shortened = max(fewer * turn_s, round_s - (turns - fewer) * turn_s)
    units = sum(one.units for one in paid) / len(lasted) / (workers + 1)
    return units * 3600 / shortened if shortened > 0 else None
