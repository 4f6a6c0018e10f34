"""The pay per GFLOP of other jobs, and the least that workers took: guidance for a job's price, from a market's
records. Pure.

A price is per 10^9 operations of a task's document, in the token's smallest unit, so that jobs of all sizes compare.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Amount

GFLOP: Final = 10**9
DAYS: Final = 30
"""Days for which a job's price counts as guidance."""


def compute_gflop_price(price: Amount, operations: int) -> Amount:
    """Returns the pay per GFLOP of a task of `operations` operations, rounded down."""
    return Amount(price * GFLOP // max(1, operations))


def describe_market_prices(paid: Sequence[Amount], token: TokenUnit) -> str:
    """Returns a text on the pay per GFLOP, by each job's price."""
    if not paid:
        return f"no job paid anybody here in the last {DAYS} days, so nothing is known of prices"
    middle, lowest, highest = (token.about(amount) for amount in (median_low(paid), min(paid), max(paid)))
    if len(paid) == 1:
        return f"one other job paid {middle} a GFLOP here in the last {DAYS} days"
    return f"others paid {middle} a GFLOP ({lowest} to {highest}, {len(paid)} jobs of the last {DAYS} days)"


def describe_takers(taken: Sequence[Amount], gflop_price: Amount, token: TokenUnit) -> str:
    """Returns a text on how many workers would take a price, by the least pay per GFLOP of each; empty without any."""
    if not taken:
        return ""
    takers = sum(1 for least in taken if least <= gflop_price)
    workers = f"{len(taken)} worker{'s' if len(taken) != 1 else ''}"
    return f"at this price of {token.about(gflop_price)} {takers} of {workers} would take it, by what they took"


def describe_guidance(
    paid: Sequence[Amount], taken: Sequence[Amount], price: Amount, operations: int | None, token: TokenUnit
) -> str:
    """Returns both in one line; the first alone where the task's operations are not known."""
    lines = [describe_market_prices(paid, token)]
    if operations:
        lines.append(describe_takers(taken, compute_gflop_price(price, operations), token))
    return "; ".join(filter(None, lines))
