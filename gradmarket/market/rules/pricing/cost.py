"""Pays for the operations that the document's bound counts, forward and backward, for the rows of one task.

    price = per_tflop * operations / 10^12, rounded up to a whole unit

Requester and workers count the same operations, so a worker checks the offer by its own count.
"""

from typing import Final

from gradmarket.market.errors import JobRefused
from gradmarket.market.fields import AmountField
from gradmarket.market.rules import pricing
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount

TERA: Final = 10**12


class Settings(pricing.Settings):
    PRICES = ("ceiling",)
    per_tflop: AmountField
    ceiling: AmountField
    """A document whose tasks would cost more is refused before any money is deposited."""


def most(settings: Settings) -> Amount:
    return settings.ceiling


def least(settings: Settings, work: PricedWork | None) -> Amount:
    return Amount(1) if work is None else _measure_price(settings, work)


def price(settings: Settings, work: PricedWork, _past: Past | None) -> Amount:
    measured = _measure_price(settings, work)
    if measured > settings.ceiling:
        raise JobRefused("price.ceiling", f"a task of {work.flops} operations costs {measured} at price.per_tflop")
    return measured


def _measure_price(settings: Settings, work: PricedWork) -> Amount:
    """Returns the price by operations, at least one unit."""
    units = -(-settings.per_tflop * work.flops // (TERA * work.unit))
    return Amount(max(1, units) * work.unit)
