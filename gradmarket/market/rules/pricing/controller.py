"""Moves the price each round so that rounds approach a target duration, like a block's base fee and its gas target.

    p' = clamp(p + p * (observed - target) / target / 8, floor, ceiling)

This is EIP-1559 (Buterin et al. 2019) with a round's duration in place of a block's gas: the observation counts up to
twice the target, a step is at most an eighth, and a rise at least one unit. Integers only. Since the observed duration
is capped at twice the target, a worker that slows a round down raises the price by at most an eighth or one unit: after
s slow rounds it is at most (9/8)^s * (p + 8 units), and never over the ceiling. A round's duration counts from its
opening to its end, pauses included.
"""

from typing import Final

from pydantic import Field, model_validator

from gradmarket.market.fields import AmountField
from gradmarket.market.rules import pricing
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount

DENOMINATOR: Final = 8
"""EIP-1559's BASE_FEE_MAX_CHANGE_DENOMINATOR."""
ELASTICITY: Final = 2
"""EIP-1559's ELASTICITY_MULTIPLIER: the longest duration that counts, in targets."""
LONGEST_MS: Final = 86_400_000


class Settings(pricing.Settings):
    PRICES = ("floor", "ceiling", "start")
    floor: AmountField
    ceiling: AmountField
    start: AmountField
    """The price of the first round."""
    target_ms: int = Field(ge=1, le=LONGEST_MS)
    """A round's target duration, in milliseconds."""

    @model_validator(mode="after")
    def _ordered(self) -> "Settings":
        if not self.floor <= self.start <= self.ceiling:
            raise ValueError("start: must lie from floor to ceiling")
        return self


def most(settings: Settings) -> Amount:
    return settings.ceiling


def least(settings: Settings, _work: PricedWork | None) -> Amount:
    return settings.floor


def price(settings: Settings, work: PricedWork, past: Past | None) -> Amount:
    if past is None:
        return settings.start
    units, target = past.price // work.unit, settings.target_ms
    observed = max(0, min(past.milliseconds, ELASTICITY * target))
    if observed > target:
        units += max(1, units * (observed - target) // target // DENOMINATOR)
    else:
        units -= units * (target - observed) // target // DENOMINATOR
    return Amount(min(settings.ceiling, max(settings.floor, units * work.unit)))
