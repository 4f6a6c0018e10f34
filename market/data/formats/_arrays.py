"""What several formats check."""

from collections.abc import Iterable

import numpy as np

from gradmarket.market.errors import TensorsRefused
from gradmarket.market.model.tensors import NUMPY_DTYPES, Expected


def check_names(found: Iterable[str], expected: Expected) -> None:
    """The same names, each once. Raises TensorsRefused."""
    names = list(found)
    if len(set(names)) != len(names):
        raise TensorsRefused("a name stands twice")
    if set(names) != set(expected):
        differing = ", ".join(sorted(set(names) ^ set(expected)))
        raise TensorsRefused(f"there are arrays too many or missing: {differing[:200]}")


def check_dtype(name: str, array: np.ndarray) -> None:
    """An element type that partitions may have. Raises TensorsRefused."""
    if array.dtype not in NUMPY_DTYPES:
        raise TensorsRefused(f"{name} is of {array.dtype}")


def check_truths(name: str, array: np.ndarray) -> None:
    """A byte other than 0 and 1 is no truth value. Raises TensorsRefused."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise TensorsRefused(f"{name} has truth values other than 0 and 1")
