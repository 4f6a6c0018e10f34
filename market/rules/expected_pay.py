"""What a worker of a job earns an hour, measured from what was paid lately. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

WINDOW_S: Final = 3600.0
"""Seconds of the past that are measured."""
LEAST_S: Final = 1.0
"""A shorter spell says nothing of an hour."""


@dataclass(frozen=True, slots=True)
class Spell:
    """One worker's paid work in a job: `units` earned from its first lease (`began`) to its last pay (`ended`)."""

    units: int
    began: float
    ended: float


def hourly(spells: Iterable[Spell]) -> float | None:
    """Returns the median over workers of units earned an hour, waiting included; None where nobody worked for long."""
    worked = [(spell.units, spell.ended - spell.began) for spell in spells if spell.ended - spell.began >= LEAST_S]
    rates = [units * 3600 / seconds for units, seconds in worked]
    return median(rates) if rates else None
