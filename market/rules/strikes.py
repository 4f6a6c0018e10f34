"""Strikes: answers that an operator owed and did not give, counted by job.

They weigh half as much every HALF_LIFE_S. An operator with too many in a job gets no work of that job until they have
decayed, and comes back by itself. What else fails in a job may be the job's own fault, so that no other job counts it.
Only withheld answers are surely the operator's fault: who is suspended for them in EVERYWHERE jobs gets no work of any.
"""

import math
from dataclasses import dataclass
from typing import Final

HALF_LIFE_S: Final = 7200.0
EVERYWHERE: Final = 3
"""Jobs."""
WHOLE: Final = 0.5
"""What a sum of strikes may have lost by decay and still count as so many."""


@dataclass(frozen=True, slots=True)
class Strikes:
    """Of one operator in one job: their weight at the time `at`, and that of the `withheld` answers among them."""

    weight: float
    withheld: float
    at: float


NONE: Final = Strikes(0.0, 0.0, 0.0)


def decayed(strikes: Strikes, now: float) -> Strikes:
    """What they weigh now; a clock that went back changes nothing."""
    left = 2.0 ** (-max(0.0, now - strikes.at) / HALF_LIFE_S)
    return Strikes(strikes.weight * left, strikes.withheld * left, max(now, strikes.at))


def struck(strikes: Strikes, now: float, withheld: bool = False) -> Strikes:
    """One more."""
    before = decayed(strikes, now)
    return Strikes(before.weight + 1.0, before.withheld + withheld, before.at)


def worked_off(strikes: Strikes, now: float) -> Strikes:
    """One less, of either kind: an accepted gradient makes up for it, or it was not the operator's fault."""
    before = decayed(strikes, now)
    return Strikes(max(0.0, before.weight - 1.0), max(0.0, before.withheld - 1.0), before.at)


def suspended_until(weight: float, at: float, most: int) -> float:
    """When so much weight has decayed below `most` strikes; not after `at` where it is below them then."""
    least = most - WHOLE
    return at if weight < least else at + HALF_LIFE_S * math.log2(weight / least)
