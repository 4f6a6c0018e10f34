"""Computes the earnings of verdicts, and the reservations for them. Integers only.

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
"""The capacity of an account of the contract: one worker may earn a job's whole budget, with every reservation."""


def unit_of(decimals: int) -> Amount:
    """Returns the number of smallest token units in one job unit: 1e9 for 18 decimals, 1 for 6."""
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
    """One worker's money in one job, in units. `in_flight`: the possible earnings of its open replicas; `waiting`: the
    part of its earnings that a test may still take from it."""

    reserved: Units
    earned: Units
    in_flight: Units
    waiting: int = 0

    @property
    def uncommitted(self) -> Units:
        return Units(max(0, self.reserved - self.earned - self.in_flight))


AHEAD_OF_WAITING: Final = 4
"""Most gradients reserved ahead for a worker whose pay waits for a test."""


def top_up(standing: AccountStanding, price: Units, ahead: int, beside: bool = False) -> Units:
    """Returns the units to reserve so that `ahead` further gradients are covered; 0 while at least half of that is
    covered, or three quarters where others are reserved for anyway (`beside`).

    One gradient is reserved for a worker that has earned nothing, else as many as it earned: a worker that leaves locks
    no more than it delivered.
    """
    waiting = standing.waiting // price
    delivered = standing.earned // price - waiting + min(AHEAD_OF_WAITING, waiting)
    gradients = max(1, min(ahead, delivered))
    if standing.uncommitted >= price * max(1, 3 * gradients // 4 if beside else gradients // 2):
        return Units(0)
    return Units(price * gradients - standing.uncommitted)


def compute_unpaid_units(earned: Units, vouchered: Units) -> Units:
    """Returns the pay that verdicts promised a worker beyond its vouchers."""
    return Units(max(0, earned - vouchered))
