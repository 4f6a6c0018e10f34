"""An offer and a plan for rows that are written by hand."""

from typing import Final

from gradmarket.market.messages import Offer
from gradmarket.market.terms import Hash, Plan, Units

ZERO: Final = Hash(bytes(32))
ALONE: Final = Plan(1, 1, 1)


def offer(price: int) -> Offer:
    return Offer(1, ZERO, 0, 0, 0, ZERO, ZERO, Units(price), ZERO, 60, 30, 30)
