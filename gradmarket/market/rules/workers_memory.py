"""Estimates the memory that a step may count on, from the workers' statements about their devices. Pure."""

from collections.abc import Sequence
from typing import Final

GRAIN: Final = 2**28
"""A worker rounds its statement down to multiples of this: enough to choose by, and little to recognise it by."""


def round_memory(size: int) -> int:
    """Returns a worker's statement about a device that takes steps of `size` bytes."""
    return size // GRAIN * GRAIN


def find_common_memory(told: Sequence[int]) -> int | None:
    """Returns the most bytes that at least half of these workers have; None where none states any."""
    known = sorted((size for size in told if size > 0), reverse=True)
    return known[(len(known) - 1) // 2] if known else None
