"""Computes what verdicts earn, and what must be reserved for it. Integers only.

EARNED is the single figure of record: batches and vouchers state the same cumulative sum, so any interleaving of them
pays it once.
"""

from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import JobRefused
from gradmarket.market.terms import Amount, Units

UNIT_DECIMALS: Final = 9
"""The job's unit is 10^-9 of a token, so that prices fit six bytes and an account holds 72 million tokens."""
MAX_PRICE: Final = 2**48 - 1
MAX_UNITS: Final = 2**56 - 1
"""What an account of the contract holds: one worker may earn a job's whole budget, and no reservation is refused."""


def unit_of(decimals: int) -> Amount:
    """Returns how many smallest token units one job unit has: 1e9 for 18 decimals, 1 for 6."""
    return Amount(10 ** max(0, decimals - UNIT_DECIMALS))


def in_units(field: str, amount: Amount, unit: Amount, most: int = MAX_UNITS) -> Units:
    """Returns `amount` in job units. Raises JobRefused where it is not a whole number of them, or over `most`."""
    units, rest = divmod(amount, unit)
    if rest:
        raise JobRefused(field, f"not a multiple of {unit}, the job's unit")
    if units > most:
        raise JobRefused(field, f"more than {most * unit}")
    return Units(units)


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """One worker's money in one job, in units. `in_flight` is what its open replicas may still earn, and `waiting` the
    part of what it earned that a test may still take from it."""

    reserved: Units
    earned: Units
    in_flight: Units
    waiting: int = 0

    @property
    def uncommitted(self) -> Units:
        return Units(max(0, self.reserved - self.earned - self.in_flight))


AHEAD_OF_WAITING: Final = 4
"""Most gradients reserved ahead for a worker whose pay waits for a test."""


def top_up(standing: AccountStanding, price: Units, ahead: int) -> Units:
    """Returns what to reserve so that `ahead` further gradients are covered; 0 while at least half of that is covered.

    One gradient is reserved for a worker that has earned nothing, else as many as it earned: who leaves locks no more
    than it delivered.
    """
    waiting = standing.waiting // price
    delivered = standing.earned // price - waiting + min(AHEAD_OF_WAITING, waiting)
    gradients = max(1, min(ahead, delivered))
    if standing.uncommitted >= price * max(1, gradients // 2):
        return Units(0)
    return Units(price * gradients - standing.uncommitted)


def compute_unpaid_units(earned: Units, vouchered: Units) -> Units:
    """Returns what verdicts promised a worker beyond what it holds vouchers for."""
    return Units(max(0, earned - vouchered))
