"""Pays the floor for every accepted answer, and more by its worth, measured once its round is merged.

    pay = max(floor, ceiling * min(1, weight * share / 3))

An answer's share of a round is measured on the requester's own rows (private.shapley). The floor is the unconditional
price that offers promise; the requester measures the rest, and nobody can check it, as for all rows that stay with
their holders. `weight` is the number of the round's answers, or where they weigh as rows all rows of the round over the
cap. So a round pays a third of the ceiling for each of them at most, beside floors, and a holder that divides its rows
among wallets does not enlarge it. Reservations cover the ceiling.
"""

from pydantic import Field, model_validator

from gradmarket.market.fields import AmountField
from gradmarket.market.rules import pricing
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount

MOST_DRAWS = 100


class Settings(pricing.Settings):
    PRICES = ("floor", "ceiling")
    floor: AmountField
    ceiling: AmountField
    draws: int = Field(default=4, ge=1, le=MOST_DRAWS)
    """Pairs of orders in which a round's answers are added up: each measures eight times as many losses as it has."""

    @model_validator(mode="after")
    def _ordered(self) -> "Settings":
        if not self.floor < self.ceiling:
            raise ValueError("ceiling: must be above the floor")
        return self

    @property
    def later(self) -> Amount:
        return Amount(self.ceiling - self.floor)


def most(settings: Settings) -> Amount:
    return settings.ceiling


def least(settings: Settings, _work: PricedWork | None) -> Amount:
    return settings.floor


def price(settings: Settings, _work: PricedWork, _past: Past | None) -> Amount:
    return settings.floor
