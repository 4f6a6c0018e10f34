"""Lines that a check or a measurement of a card prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

SEED: Final = bytes(range(32))
MEMORY: Final = 2**33
"""Bytes of a child."""


@dataclass(frozen=True)
class Line:
    """One check or figure: `ok` is None for a figure without a target."""

    name: str
    ok: bool | None
    note: str = ""
    value: float | None = None
    unit: str = ""


def measure_distance(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Returns the largest distance of two elements of one place, over the largest element of their array."""
    return max(
        float(np.abs(array.astype(np.float64) - other[name]).max() / (np.abs(other[name]).max() or 1.0))
        for name, array in one.items()
        if array.size
    )
