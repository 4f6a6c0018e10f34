"""What work is worth to this worker: its least price for a job, an hour's pay, and which of several offers to take.

Pure. Amounts are integers in the token's smallest unit; seconds are this machine's own, as measured.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

from gradmarket.market.terms import Amount

NOTHING: Final = Amount(0)
TERA: Final = 10**12
HOUR_S: Final = 3600
OVERHEAD_S: Final = Fraction(1, 20)
"""Of a task beside its step: polls, sealing, the upload."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """What its owner set: least pay for a gradient, for 10^12 operations, and for an hour of steps."""

    gradient: Amount
    tflop: Amount = NOTHING
    hour: Amount = NOTHING

    @property
    def minds_effort(self) -> bool:
        return self.tflop > 0 or self.hour > 0


@dataclass(frozen=True, slots=True)
class Effort:
    """One task: its operations by the document's bound, and how long its step takes here."""

    flops: int
    seconds: float

    @property
    def whole(self) -> Fraction:
        return Fraction(self.seconds) + OVERHEAD_S


def least(minimum: Minimum, effort: Effort) -> Amount:
    """The least price of a gradient that keeps every minimum, rounded up."""
    by_work = Fraction(minimum.tflop * effort.flops, TERA)
    by_time = minimum.hour * effort.whole / HOUR_S
    return Amount(max(minimum.gradient, ceil(by_work), ceil(by_time)))


def hourly(price: Amount, effort: Effort) -> Amount:
    """What an hour would bring at most, were there always a task for it: price * 3600 / (step + overhead)."""
    return Amount(int(price * HOUR_S / effort.whole))


@dataclass(frozen=True, slots=True)
class Prospect:
    """One job of one market, by its id."""

    job: str
    name: str
    price: Amount
    effort: Effort

    @property
    def worth(self) -> Fraction:
        """Pay for a second of work. Gas is paid in the chain's own coin, once for many gradients, and not counted."""
        return self.price / self.effort.whole


def best(prospects: Sequence[Prospect], minimum: Minimum) -> Prospect | None:
    """The one with the highest worth among those that keep the minimum and bring something.

    Of equal ones the first by id, in whatever order they come. All are of one market, so of one token.
    """
    fit = [one for one in prospects if one.price >= least(minimum, one.effort) and one.worth > 0]
    return min(fit, key=lambda one: (-one.worth, one.job), default=None)


def ranked(markets: Sequence[tuple[Hashable, Fraction]]) -> list[int]:
    """The places of markets, the best paying first. Each is its token and the worth of its best job there.

    Amounts of different tokens cannot be compared: the markets of a token all stand where the first of them stood.
    """
    first: dict[Hashable, int] = {}
    for place, (token, _) in enumerate(markets):
        first.setdefault(token, place)
    return sorted(range(len(markets)), key=lambda place: (first[markets[place][0]], -markets[place][1]))
