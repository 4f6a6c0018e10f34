"""Finds labels and indices outside of the range that the model takes, before anybody computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphdoc.errors import Refused
from graphdoc.figures import Range, Ranges

IGNORED: Final = -100
"""The label that torch's losses ignore."""


@dataclass(frozen=True)
class Outside:
    """The first value of an input that the model does not take; `row` is counted from 0."""

    input: str
    row: int
    value: int
    allowed: Range

    def describe(self) -> str:
        allowed = self.allowed
        ignored = "" if allowed.ignored is None else f", and {allowed.ignored} for none"
        taken = f"{allowed.least} to {allowed.end - 1}{ignored}"
        place = f" at place {allowed.columns[0]}" if len(allowed.columns) == 1 else ""
        return f"row {self.row} of {self.input} has {self.value}{place}; the model takes {taken}"


def find_misfit(arrays: Mapping[str, np.ndarray], ranges: Ranges) -> Outside | None:
    """Returns the first value of integer arrays [rows, …] that is outside of its range, or None."""
    for name in sorted(ranges):
        array = arrays.get(name)
        if array is None or array.dtype.kind not in "iu" or not array.size:
            continue
        rows, found = array.reshape(len(array), -1), []
        for allowed in ranges[name]:
            part = rows[:, list(allowed.columns)] if allowed.columns else rows
            if part.min() >= allowed.least and part.max() < allowed.end:
                continue
            bad = (part < allowed.least) | (part >= allowed.end)
            if allowed.ignored is not None:
                bad &= part != allowed.ignored
            if bad.any():
                row, column = divmod(int(bad.argmax()), part.shape[1])
                found.append(Outside(name, row, int(part[row, column]), allowed))
        if found:
            return min(found, key=lambda one: one.row)
    return None


def check_labels(arrays: Mapping[str, np.ndarray], taken: Ranges) -> None:
    """Raises Refused, naming the first row with a label or index that the model does not take."""
    problem = find_misfit(arrays, taken)
    if problem is None:
        return
    allowed, array = problem.allowed, arrays[problem.input]
    if allowed.least == 0 and not allowed.columns and int(array.min()) == 1 and int(array.max()) == allowed.end:
        raise Refused(f"{problem.describe()}: labels count from 0: give {problem.input} - 1")
    raise Refused(f"{problem.describe()}: correct that row, or give the model more classes")
