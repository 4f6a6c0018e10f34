"""The wait of a round for slow machines, and the time in which a worker is expected to commit.

Times are measured by the requester, from a lease to its commitment: they include a worker's computing, its link, and
anything that makes its rows slow for everybody. None of them affects pay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

LEAST: Final = 3
"""Fewer measured times give no pace."""
DEVIATIONS: Final = 4.0
"""Standard deviations above its median that a worker may take before it counts as late."""
NORMAL: Final = 1.4826
"""Standard deviation over median absolute deviation of normal samples (Rousseeuw and Croux, 1993)."""
MARGIN: Final = 0.5
"""A worker's margin is at least this share of its median, even where its times are all alike."""
SLOWEST: Final = 4.0
"""A worker's expected time is at most this many times its class's, however slow it was before."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The median of measured times, and their median absolute deviation from it, in seconds."""

    median: float
    deviation: float

    @property
    def spread(self) -> float:
        return DEVIATIONS * NORMAL * self.deviation

    @property
    def latest(self) -> float:
        return self.median + max(self.spread, MARGIN * self.median)


def compute_pace(seconds: Sequence[float]) -> Pace | None:
    """Returns the pace of these times; None if they are too few. Less than half of them cannot move it far."""
    if len(seconds) < LEAST:
        return None
    middle = median(seconds)
    return Pace(middle, median(abs(time - middle) for time in seconds))


def expected_s(own: Sequence[float], of_class: Sequence[float], most: float) -> float:
    """Returns the seconds within which a worker's commitment is expected, at most `most`, the job's lease.

    By its own times, or its class's where it has too few; at most SLOWEST times its class's, so that a worker that
    pretends to be slow is not waited for longer.
    """
    usual = compute_pace(of_class)
    if usual is None:
        return most
    return min(most, SLOWEST * usual.latest, (compute_pace(own) or usual).latest)


def grace_s(ends: Sequence[float], usual: Pace | None, most: float) -> float:
    """Returns the time that a round with its least tasks waits for the others; `ends`: when each is expected, from now.

    The next round has to wait for the tasks that this one leaves. Where these are expected later than tasks that begin
    now, the difference would be lost in any case: it is the slack that this round waits. At least it waits as long as
    equal machines may differ.
    """
    if usual is None or not ends:
        return 0.0
    slack = max(ends) - usual.median
    return min(most, max(slack, usual.spread, 0.0))
