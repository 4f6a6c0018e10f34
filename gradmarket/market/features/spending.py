"""A token's budget of a day: any 24 hours, so that no midnight doubles it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from gradmarket.market.fields import DeferredModel
from gradmarket.market.terms import Amount

DAY_S: Final = 86_400.0
ALARM: Final = (4, 5)
"""The share of the budget from which on an alarm is due."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An amount that was spent at `at` (Unix seconds)."""

    at: float
    amount: Amount


@dataclass(frozen=True, slots=True)
class Room:
    """`left` is left now; the asked amount fits at `fits_at`: now where it fits, None where it exceeds the whole
    budget.

    Amounts are in the token's smallest unit, times in Unix seconds.
    """

    spent: Amount
    left: Amount
    fits_at: float | None


def find_room(spent: Iterable[Spent], a_day: Amount, asked: Amount, now: float) -> Room:
    """Returns how much of the budget `a_day` is left, and when `asked` fits."""
    counted = sorted((one for one in spent if one.at > now - DAY_S), key=lambda one: one.at)
    total = sum(one.amount for one in counted)
    left, fits_at = a_day - total, now if asked <= a_day - total else None
    room = left
    for one in counted:
        room += one.amount
        if fits_at is None and asked <= room and asked <= a_day:
            fits_at = one.at + DAY_S
    return Room(Amount(total), Amount(max(0, left)), fits_at)


def is_alarm_due(before: Amount, after: Amount, a_day: Amount) -> bool:
    """Returns whether the spending rose from below the alarm's share of the budget to it or above."""
    part, of = ALARM
    return before * of < a_day * part <= after * of


class NewSpendingLimit(DeferredModel):
    model_config = ConfigDict(extra="forbid")

    a_day: Annotated[str, Field(max_length=200)] | None
