"""Selects a model's inputs from the available columns, and their element types."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from gradmarket.market.data.inputs import Column
from gradmarket.market.data.values import outside
from gradmarket.market.errors import Refused
from gradmarket.market.model.figures import Range, Ranges
from gradmarket.market.model.tensors import DTYPES

Arrays = Mapping[str, np.ndarray]
IGNORED: Final = -100
"""The label that torch's losses do not count."""
LABELS_AT_MOST = 100_000
"""Only whole numbers from 0 up to this limit count as labels."""


def chosen(arrays: Arrays, inputs: Mapping[str, Sequence[str]] | None = None, target: str | None = None) -> Arrays:
    """Returns the inputs by name: those of `inputs` joined from their columns, and `y` from the column `target`.

    With a target alone, `x` is every other column. With neither, every column is an input of its own name. Raises
    Refused and names the missing columns.
    """
    picked = dict(inputs or {})
    if target is not None:
        picked.setdefault("x", [name for name in arrays if name != target])
        picked["y"] = [target]
    if not picked:
        picked = {name: [name] for name in arrays}
    missing = sorted({column for columns in picked.values() for column in columns} - set(arrays))
    if missing:
        raise Refused(f"there is no column {', '.join(missing)[:200]}; there is {', '.join(arrays)[:300]}")
    result = {name: typed(name, _side_by_side([arrays[column] for column in picked[name]])) for name in sorted(picked)}
    _check_rows(result)
    return result


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    if len(columns) == 1:
        return columns[0]
    if not columns:
        raise Refused("an input of no columns")
    return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1, dtype=np.float32)


def typed(name: str, array: np.ndarray) -> np.ndarray:
    """Converts to an element type of the market: other floats become float32, other integers int64."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what no float32 holds becomes infinite, which check_values refuses
            return array.astype(np.float32, copy=False)
    if array.dtype.name in DTYPES.values():
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "iu":
        if array.size and int(array.max()) >= 2**63:
            raise Refused(f"{name} has numbers that do not fit int64")
        return array.astype(np.int64)
    raise Refused(f"{name} is of {array.dtype}: turn it into numbers first")


def _check_rows(arrays: Arrays) -> None:
    rows = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(rows.values())) != 1 or not min(rows.values()):
        raise Refused(f"inputs have one number of rows, and some: {rows}")


def check_values(arrays: Arrays, classes: int | None = None) -> None:
    """Every number is finite, and with `classes` every label of `y` is below that. Raises Refused, naming the row."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
            raise Refused(f"row {row} of {name} has a number that is not finite in {array.dtype}: mend or drop it")
    if classes is not None:
        check_labels(arrays, {"y": [Range(0, classes, IGNORED)]})


def check_labels(arrays: Arrays, taken: Ranges) -> None:
    """Raises Refused, naming the first row with a label or index that the model does not take."""
    problem = outside(arrays, taken)
    if problem is not None:
        raise Refused(f"{problem.said()}: mend that row, or give the model more classes")


def columns_of(arrays: Arrays) -> dict[str, Column]:
    """Returns each input's element type and row shape for the manifest."""
    return {name: _column(name, array) for name, array in sorted(arrays.items())}


def _column(name: str, array: np.ndarray) -> Column:
    """Treats `y` as labels if it holds integers from 0."""
    labels = name == "y" and array.ndim == 1 and array.dtype.kind == "i" and int(array.min()) >= 0
    classes = int(array.max()) + 1 if labels else None
    if classes is not None and classes > LABELS_AT_MOST:
        classes = None
    return Column(dtype=array.dtype.name, shape=array.shape[1:], classes=classes)
