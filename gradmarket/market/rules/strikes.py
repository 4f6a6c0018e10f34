"""Counts strikes by operator and job. A strike is an answer that an operator owed and did not give.

A strike's weight halves every HALF_LIFE_S. An operator with too many strikes in a job gets no work of that job until
they have decayed. Other jobs do not count them, since other failures may be the job's own fault. Only a withheld answer
is surely the operator's fault: an operator suspended for these in EVERYWHERE jobs gets no work of any job.
"""

import math
from dataclasses import dataclass
from typing import Final

HALF_LIFE_S: Final = 7200.0
EVERYWHERE: Final = 3
"""The number of jobs."""
BARRED_S: Final = 30 * 86_400
"""Seconds for which an operator gets no work after an audit of its work failed."""
WHOLE: Final = 0.5
"""The most weight that a sum of strikes may have lost by decay and still count in full."""


@dataclass(frozen=True, slots=True)
class Strikes:
    """One operator's strikes in one job.

    `weight` is the weight of all of them at the time `at`, `withheld` that of the withheld answers among them.
    """

    weight: float
    withheld: float
    at: float


NONE: Final = Strikes(0.0, 0.0, 0.0)


def decay_strikes(strikes: Strikes, now: float) -> Strikes:
    """Returns the strikes with their weight at `now`. A clock that went back changes no weight."""
    left = 2.0 ** (-max(0.0, now - strikes.at) / HALF_LIFE_S)
    return Strikes(strikes.weight * left, strikes.withheld * left, now)


def add_strike(strikes: Strikes, now: float, withheld: bool = False) -> Strikes:
    """Returns the strikes after one more."""
    before = decay_strikes(strikes, now)
    return Strikes(before.weight + 1.0, before.withheld + withheld, before.at)


def worked_off(strikes: Strikes, now: float) -> Strikes:
    """Returns the strikes after one less, of either kind.

    An accepted gradient makes up for a strike; a strike that was not the operator's fault is taken back.
    """
    before = decay_strikes(strikes, now)
    return Strikes(max(0.0, before.weight - 1.0), max(0.0, before.withheld - 1.0), before.at)


def suspended_until(weight: float, at: float, most: int) -> float:
    """Returns when `weight` will have decayed below `most` strikes; 0 where it is below already.

    A time for operators without strikes would suspend them if the clock went back.
    """
    least = most - WHOLE
    return 0.0 if weight < least else at + HALF_LIFE_S * math.log2(weight / least)
