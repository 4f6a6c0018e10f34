"""How much memory a step may count on, by what workers say of their devices. Pure."""

from collections.abc import Sequence
from typing import Final

GRAIN: Final = 2**28
"""Bytes to whose multiples a worker rounds what it says: enough to choose by, and little to recognise it by."""


def round_memory(size: int) -> int:
    """Returns what a worker says of a device that takes steps of so many bytes."""
    return size // GRAIN * GRAIN


def find_common_memory(told: Sequence[int]) -> int | None:
    """Returns the most bytes that at least half of these workers have; None where nobody says any."""
    known = sorted((size for size in told if size > 0), reverse=True)
    return known[(len(known) - 1) // 2] if known else None
