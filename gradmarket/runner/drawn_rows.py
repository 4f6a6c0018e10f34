"""Extra arrays of a private task: counts of drawn rows, and corrections (control_variates). No torch.

A step draws rows by chance (private.row_budget). The rows of a step that come after them fill its batch and count as
zeros, so that no batch's size reveals the number of drawn rows. A correction is added to each of its inner gradients.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from gradmarket.market.errors import Refused

Arrays = Mapping[str, np.ndarray]
DRAWN: Final = "drawn:"
"""A colon is in no name of a document."""


def build_drawn_counts(counts: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the counts, step by step, by the name under which a task takes them."""
    return {DRAWN: np.array(counts, np.int64)}


def read_drawn_count(state: Arrays, place: int) -> int:
    """Returns the number of rows that the task's step number `place` drew. Raises Refused if the count is missing."""
    counts = state.get(DRAWN)
    if counts is None or counts.ndim != 1 or not 0 <= place < len(counts):
        raise Refused("a step over rows that are drawn by chance needs how many it drew")
    return int(counts[place])


CORRECTION: Final = "correction:"
"""Precedes their names. A colon is in no name of a document."""


def prefix_corrections(correction: Arrays) -> dict[str, np.ndarray]:
    """Returns corrections of parameters by the names under which a step takes them."""
    return {CORRECTION + name: array for name, array in correction.items()}


def select_corrections(state: Arrays) -> dict[str, np.ndarray]:
    """Returns the corrections among a step's arrays, by parameter; none where there are none."""
    return {name.removeprefix(CORRECTION): array for name, array in state.items() if name.startswith(CORRECTION)}
