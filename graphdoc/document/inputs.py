"""Checks that arrays are the inputs of a document: its state, and one batch of rows. No torch."""

from collections.abc import Mapping

import numpy as np

from graphdoc.document.graph import Document, Expected
from graphdoc.errors import Refused


def check_state(document: Document, state: Mapping[str, np.ndarray]) -> None:
    """Raises Refused unless the state has every parameter, buffer and constant of the document; it may have more."""
    _check("state", document.state, state)


def check_batch(document: Document, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the number of rows of a batch.

    Raises Refused unless it has exactly the document's data inputs, all with the same number of rows.
    """
    lengths = {array.shape[0] if array.ndim else 0 for array in batch.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise Refused(f"a batch has inputs of one number of rows, not {sorted(lengths)}")
    rows = lengths.pop()
    expected = document.batch(rows, sizes_of(document, batch))
    if set(batch) != set(expected):
        raise Refused(f"a batch has {', '.join(expected)}, not {', '.join(sorted(batch))[:200]}")
    _check("batch", expected, batch)
    return int(rows)


def sizes_of(document: Document, batch: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns the sizes of the named dimensions in this batch, taken from the first array with each name.

    Raises Refused where one is out of range. `check_batch` compares the other arrays with them.
    """
    sizes: dict[str, int] = {}
    for entry in document.of("data"):
        shape = batch[entry.name].shape[1:] if entry.name in batch else ()
        for place, name in entry.named:
            if len(shape) == len(entry.shape):
                sizes.setdefault(name, shape[place])
    for name, size in sizes.items():
        if not 1 <= size <= document.sizes[name]:
            raise Refused(f"batch: the {name} is {size}, not 1 to {document.sizes[name]}")
    return sizes


def _check(subject: str, expected: Expected, arrays: Mapping[str, np.ndarray]) -> None:
    for name, (shape, dtype) in expected.items():
        if name not in arrays:
            raise Refused(f"{subject}: there is no {name}")
        array = arrays[name]
        if tuple(array.shape) != shape or array.dtype != np.dtype(dtype):
            raise Refused(f"{subject}: {name} is {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
