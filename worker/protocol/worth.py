"""The worth of work to this worker: its least price for a job, the pay per hour, and the best offer.

Pure. Amounts are integers in the token's smallest unit; seconds are measured on this machine.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

from gradmarket.compute.machine import Effort
from gradmarket.market.terms import Amount

NOTHING: Final = Amount(0)
TERA: Final = 10**12
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Minimum:
    """The owner's minimums: least pay for a gradient, for 10^12 operations, and for an hour of steps."""

    gradient: Amount
    tflop: Amount = NOTHING
    hour: Amount = NOTHING

    @property
    def minds_effort(self) -> bool:
        return self.tflop > 0 or self.hour > 0


def compute_least_price(minimum: Minimum, effort: Effort) -> Amount:
    """Returns the least price of a gradient that meets every minimum, rounded up."""
    by_work = Fraction(minimum.tflop * effort.flops, TERA)
    by_time = minimum.hour * effort.whole / HOUR_S
    return Amount(max(minimum.gradient, ceil(by_work), ceil(by_time)))


def compute_hourly_pay(price: Amount, effort: Effort) -> Amount:
    """Returns the most that an hour can bring, with a task always available: price * 3600 / (step + overhead)."""
    return Amount(int(price * HOUR_S / effort.whole))


@dataclass(frozen=True, slots=True)
class Prospect:
    """The possible pay of one job of a market."""

    job: str
    name: str
    price: Amount
    effort: Effort

    @property
    def worth(self) -> Fraction:
        """Returns the pay per second.

        Gas is not counted: it is paid in the chain's own coin, once for many gradients.
        """
        return self.price / self.effort.whole


def find_best_prospect(prospects: Sequence[Prospect], minimum: Minimum) -> Prospect | None:
    """Returns the prospect of highest worth among those that meet the minimum and pay at all.

    Ties are broken by the job's id, for any input order. All must be of one market, so of one token.
    """
    fit = [one for one in prospects if one.price >= compute_least_price(minimum, one.effort) and one.worth > 0]
    return min(fit, key=lambda one: (-one.worth, one.job), default=None)


def rank_markets(markets: Sequence[tuple[Hashable, Fraction]]) -> list[int]:
    """Returns the indices of markets, best paying first. Each market is given as its token and its best job's worth.

    Amounts of different tokens cannot be compared: the markets of a token all rank where its first market stood.
    """
    first: dict[Hashable, int] = {}
    for index, (token, _) in enumerate(markets):
        first.setdefault(token, index)
    return sorted(range(len(markets)), key=lambda index: (first[markets[index][0]], -markets[index][1]))
