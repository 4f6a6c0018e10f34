"""Every round pays the same amount."""

from gradmarket.market.fields import AmountField
from gradmarket.market.rules import pricing
from gradmarket.market.rules.pricing import Past, PricedWork
from gradmarket.market.terms import Amount


class Settings(pricing.Settings):
    PRICES = ("amount",)
    amount: AmountField


def most(settings: Settings) -> Amount:
    return settings.amount


def least(settings: Settings, _work: PricedWork | None) -> Amount:
    return settings.amount


def price(settings: Settings, _work: PricedWork, _past: Past | None) -> Amount:
    return settings.amount
