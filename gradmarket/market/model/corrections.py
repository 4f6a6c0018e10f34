"""What a step adds to each of its inner gradients, among the arrays it is given (control_variates). No torch."""

from collections.abc import Mapping
from typing import Final

import numpy as np

Arrays = Mapping[str, np.ndarray]
CORRECTION: Final = "correction:"
"""Precedes their names. A colon is in no name of a document."""


def prefix_corrections(correction: Arrays) -> dict[str, np.ndarray]:
    """Returns corrections of parameters by the names under which a step takes them."""
    return {CORRECTION + name: array for name, array in correction.items()}


def select_corrections(state: Arrays) -> dict[str, np.ndarray]:
    """Returns the corrections among a step's arrays, by parameter; none where there are none."""
    return {name.removeprefix(CORRECTION): array for name, array in state.items() if name.startswith(CORRECTION)}
