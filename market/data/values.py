"""Finds labels and indices outside of the range that the model takes, before anybody computes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradmarket.market.model.figures import Range


@dataclass(frozen=True)
class Outside:
    """The first value of an input that the model does not take; `row` is counted from 0."""

    input: str
    row: int
    value: int

    def said(self, allowed: Range) -> str:
        ignored = "" if allowed.ignored is None else f", and {allowed.ignored} for none"
        taken = f"{allowed.least} to {allowed.end - 1}{ignored}"
        return f"row {self.row} of {self.input} has {self.value}; the model takes {taken}"


def outside(arrays: Mapping[str, np.ndarray], ranges: Mapping[str, Range]) -> Outside | None:
    """Returns the first value of integer arrays [rows, …] that is outside of its range, or None."""
    for name, allowed in sorted(ranges.items()):
        array = arrays.get(name)
        if array is not None and array.dtype.kind in "iu" and (misfit := _first(array, allowed)) is not None:
            return Outside(name, *misfit)
    return None


def _first(array: np.ndarray, allowed: Range) -> tuple[int, int] | None:
    flat = array.reshape(-1)
    if flat.size and (flat.min() < allowed.least or flat.max() >= allowed.end):
        bad = (flat < allowed.least) | (flat >= allowed.end)
        if allowed.ignored is not None:
            bad &= flat != allowed.ignored
        if bad.any():
            place = int(bad.argmax())
            return place // (flat.size // len(array)), int(flat[place])
    return None
