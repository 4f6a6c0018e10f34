"""Verdict -> earned, and what must be reserved for it. Integers only.

EARNED is the one figure: batches and vouchers count the same cumulative sum, so any interleaving pays it once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gradmarket.market.errors import JobRefused
from gradmarket.market.terms import Amount, Units

UNIT_DECIMALS: Final = 9
"""The job's unit is 10^-9 of a token, so that prices fit six bytes and a uint64 ledger holds 18 billion tokens."""
MAX_PRICE: Final = 2**48 - 1
MAX_UNITS: Final = 2**63 - 1
"""Half of the contract's uint64: the books hold signed 64-bit integers."""


def unit_of(decimals: int) -> Amount:
    """Smallest token units in one job unit: 1e9 for 18 decimals, 1 for 6."""
    return Amount(10 ** max(0, decimals - UNIT_DECIMALS))


def in_units(field: str, amount: Amount, unit: Amount, most: int = MAX_UNITS) -> Units:
    """`amount` in job units; raises JobRefused where it is no whole number of them or too large."""
    units, rest = divmod(amount, unit)
    if rest:
        raise JobRefused(field, f"not a multiple of {unit}, the job's unit")
    if units > most:
        raise JobRefused(field, f"more than {most * unit}")
    return Units(units)


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """One worker's money in one job, in units. `in_flight` is what its open replicas may still earn."""

    reserved: Units
    earned: Units
    in_flight: Units

    @property
    def uncommitted(self) -> Units:
        return Units(max(0, self.reserved - self.earned - self.in_flight))


AHEAD_OF_EARNED: Final = 4
"""So many gradients are reserved ahead for each that was earned, until that is as many as the settings say."""


def top_up(standing: AccountStanding, price: Units, ahead: int) -> Units:
    """What to reserve so that `ahead` further gradients are covered; 0 while half of that still is.

    A worker that has earned nothing gets one gradient's cover, and one that has earned little gets little: what an
    identity can lock is in proportion to what it delivered.
    """
    gradients = max(1, min(ahead, AHEAD_OF_EARNED * standing.earned // price))
    if standing.uncommitted >= price * max(1, gradients // 2):
        return Units(0)
    return Units(price * gradients - standing.uncommitted)


def cumulative(earned: Iterable[Units]) -> Units:
    """What a voucher says: the sum of all that was ever earned in the job."""
    return Units(sum(earned))


def unpaid(earned: Units, vouchered: Units) -> Units:
    """What a worker was promised by verdicts beyond what it holds vouchers for."""
    return Units(max(0, earned - vouchered))
