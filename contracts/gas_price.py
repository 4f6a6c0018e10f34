"""Gas fees of a transaction and of its replacement: rules over the chain's current price."""

from dataclasses import dataclass
from typing import Final

from contracts.transaction_types import Fees
from gradmarket.network.chain_errors import GasTooDear

GWEI: Final = 10**9
BUMP: Final = 1.125
"""Least factor by which both fees of a replacement are higher: nodes ask for an eighth at most."""
WAITS: Final = "waits:"
"""Prefix of the reason when the only obstacle is the price of gas."""


@dataclass(frozen=True, slots=True)
class GasPrice:
    """Wei per gas: the newest block's base fee (EIP-1559), None on a chain that has none; and the usual tip on top of
    it, or the usual price where there is no base fee."""

    base: int | None
    tip: int

    @property
    def least(self) -> int:
        """Returns the price that a transaction must offer now to be mined soon."""
        return (self.base or 0) + self.tip


def compute_offered_fees(price: GasPrice, ceiling: int | None = None) -> Fees:
    """Returns fees that cover a doubling of the base fee, within the ceiling. Raises GasTooDear where it is too low."""
    if ceiling is not None and price.least > ceiling:
        raise GasTooDear(describe_gas_wait(price, ceiling))
    most = price.tip if price.base is None else 2 * price.base + price.tip
    return _limit_fees(most, price.tip, price.base is None, ceiling)


def compute_raised_fees(old: Fees, price: GasPrice, overdue: bool, ceiling: int | None = None) -> Fees | None:
    """Returns a replacement's fees; None where the old ones are enough for the chain's price now and it is not overdue.

    Raises GasTooDear where the ceiling leaves no room for a replacement that a node takes, or for the price now.
    """
    short = old.most < (price.base or 0) + min(old.tip, price.tip)
    if not short and not overdue:
        return None
    least = compute_least_replacement(old)
    if ceiling is not None and (least.most > ceiling or (short and price.least > ceiling)):
        raise GasTooDear(describe_gas_wait(price, ceiling))
    now = price.tip if price.base is None else 2 * price.base + price.tip
    return _limit_fees(max(least.most, now), max(least.tip, price.tip), old.legacy, ceiling)


def compute_least_replacement(old: Fees) -> Fees:
    """Returns the least that every node takes as a replacement's fees."""
    return Fees(int(old.most * BUMP) + 1, int(old.tip * BUMP) + 1, old.legacy)


def describe_gas_wait(price: GasPrice, ceiling: int, setting: str = "GRADMARKET_MAX_FEE") -> str:
    return f"{WAITS} gas is {price.least / GWEI:.4g} gwei, ceiling {ceiling / GWEI:.4g} gwei ({setting})"


def _limit_fees(most: int, tip: int, legacy: bool, ceiling: int | None) -> Fees:
    most = most if ceiling is None else min(most, ceiling)
    return Fees(most, most if legacy else min(tip, most), legacy)
