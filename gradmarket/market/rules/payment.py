"""Computes what verdicts earn, and what must be reserved for it. Integers only.

EARNED is the single figure of record: batches and vouchers state the same cumulative sum, so any interleaving of them
pays it once.
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
"""Half of the contract's uint64: the database holds signed 64-bit integers."""


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
    """One worker's money in one job, in units. `in_flight` is what its open replicas may still earn."""

    reserved: Units
    earned: Units
    in_flight: Units

    @property
    def uncommitted(self) -> Units:
        return Units(max(0, self.reserved - self.earned - self.in_flight))


AHEAD_OF_EARNED: Final = 4
"""Gradients reserved ahead for each one that was earned, until the number in the settings is reached."""


def top_up(standing: AccountStanding, price: Units, ahead: int) -> Units:
    """Returns what to reserve so that `ahead` further gradients are covered; 0 while at least half of that is covered.

    For a worker that has earned nothing one gradient is reserved, and few for one that has earned little: what an
    identity can lock is proportional to what it delivered.
    """
    gradients = max(1, min(ahead, AHEAD_OF_EARNED * standing.earned // price))
    if standing.uncommitted >= price * max(1, gradients // 2):
        return Units(0)
    return Units(price * gradients - standing.uncommitted)


def compute_cumulative_pay(earned: Iterable[Units]) -> Units:
    """Returns the amount of a voucher: the sum of all that was ever earned in the job."""
    return Units(sum(earned))


def compute_unpaid_units(earned: Units, vouchered: Units) -> Units:
    """Returns what verdicts promised a worker beyond what it holds vouchers for."""
    return Units(max(0, earned - vouchered))
