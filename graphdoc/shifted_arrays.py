"""Arrays that no file stores: each is another one moved on by one, as the next tokens of a text are.

The stored array has one element more in its first dimension after the rows than both that are made of it.
"""

from collections.abc import Mapping

import numpy as np

from graphdoc.tensors import Expected

Shifted = Mapping[str, str]
"""Maps the name of each array that is not stored to the one that it is moved on from."""


def list_stored_arrays(expected: Expected, shifted: Shifted) -> Expected:
    """Returns shape and element type of each array that a file of the `expected` ones holds."""
    longer = frozenset(shifted.values())
    return {
        name: ((shape[0], shape[1] + 1, *shape[2:]) if name in longer else shape, dtype)
        for name, (shape, dtype) in expected.items()
        if name not in shifted
    }


def split_stored_arrays(stored: Mapping[str, np.ndarray], shifted: Shifted) -> dict[str, np.ndarray]:
    """Returns the stored arrays with those that are made of them, as views."""
    ends = {name: stored[source][:, 1:] for name, source in shifted.items()}
    return {name: array[:, :-1] if name in shifted.values() else array for name, array in stored.items()} | ends


def join_shifted_arrays(arrays: Mapping[str, np.ndarray], shifted: Shifted) -> dict[str, np.ndarray]:
    """Returns the arrays to store, of which `split_stored_arrays` makes these again."""
    ends = {source: arrays[name][:, -1:] for name, source in shifted.items()}
    return {
        name: np.concatenate([array, ends[name]], axis=1) if name in ends else array
        for name, array in arrays.items()
        if name not in shifted
    }
