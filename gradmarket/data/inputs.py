"""Selects a model's inputs from the available columns, and their element types."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from gradmarket.market.errors import Refused
from gradmarket.market.manifest import Column
from graphdoc.figures import Range
from graphdoc.tensors import DTYPES
from graphdoc.values import IGNORED, check_labels

Arrays = Mapping[str, np.ndarray]
WHOLE_BELOW: Final = 2.0**70
"""Whole numbers beyond this are measured quantities, and no ids or times."""
FEW_STEPS: Final = 1e-3
"""Share of a column's range up to which float32 may round its numbers."""
LABELS_AT_MOST = 100_000
"""Only whole numbers from 0 up to this limit count as labels."""


def select_inputs(
    arrays: Arrays, inputs: Mapping[str, Sequence[str]] | None = None, target: str | None = None
) -> Arrays:
    """Returns the inputs by name: those of `inputs` joined from their columns, and `y` from the column `target`.

    With a target alone, `x` is every other column. With neither, every column is an input of its own name. Raises
    Refused and names the missing columns.
    """
    picked = pick_columns(list(arrays), inputs, target)
    missing = sorted({column for columns in picked.values() for column in columns} - set(arrays))
    if missing:
        raise Refused(f"there is no column {', '.join(missing)[:200]}; the columns are {', '.join(arrays)[:300]}")
    if not arrays:
        raise Refused("it has no array")
    result = {}
    for name, columns in sorted(picked.items()):
        if not columns:
            raise Refused("an input needs a column")
        joined = arrays[columns[0]]
        if len(columns) > 1:  # side by side in float32, where none loses by it: two ids that were apart would be one
            for column in columns:
                _check_in_float32(column, arrays[column], alone=f"an input of its own (--input {column}={column})")
            flat = [arrays[column].reshape(len(arrays[column]), -1) for column in columns]
            joined = np.concatenate(flat, axis=1, dtype=np.float32)
        result[name] = convert_element_type(name, joined)
    rows = {name: len(array) if array.ndim else 0 for name, array in result.items()}
    if len(set(rows.values())) != 1 or not min(rows.values()):
        raise Refused(f"the inputs differ in their number of rows: {rows}")
    return result


def pick_columns(
    names: Sequence[str], inputs: Mapping[str, Sequence[str]] | None = None, target: str | None = None
) -> dict[str, Sequence[str]]:
    """Returns the columns of each input, as `select_inputs` joins them."""
    picked = dict(inputs or {})
    if target is not None:
        picked.setdefault("x", [name for name in names if name != target])
        picked["y"] = [target]
    return picked or {name: [name] for name in names}


def _check_in_float32(name: str, column: np.ndarray, alone: str) -> None:
    """Raises Refused where float32 does not hold a column's whole numbers, or rounds its numbers to few steps."""
    if column.dtype.kind not in "iuf" or not column.size or column.dtype == np.float32:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        as_float32 = column.astype(np.float32).astype(np.float64)
        whole = column.dtype.kind in "iu" or bool((column == np.rint(column)).all())
        changed = np.flatnonzero((as_float32 != column.astype(np.float64)).ravel())
    if not changed.size or not np.isfinite(as_float32).all():
        return
    largest, spread = float(np.abs(as_float32).max()), float(column.max()) - float(column.min())
    step = float(np.spacing(np.float32(largest)))
    if (whole and largest < WHOLE_BELOW) or (spread and step > spread * FEW_STEPS):
        bad, rounded = column.ravel()[changed[0]], as_float32.ravel()[changed[0]]
        raise Refused(
            f"column {name} has {bad}, which float32 rounds to {rounded:.0f}: give whole numbers {alone}, or subtract "
            "the least and scale the column first"
        )


def convert_element_type(name: str, array: np.ndarray) -> np.ndarray:
    """Converts to an element type of the market: other floats become float32, labels and other integers int64."""
    if name == "y" and array.dtype.kind in "iu" and array.ndim == 1 and array.dtype.itemsize < 8:
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        _check_in_float32(name, array, alone="as integers")
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which check_values refuses
            return array.astype(np.float32, copy=False)
    if array.dtype.name in DTYPES.values():
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "iu":
        if array.size and int(array.max()) >= 2**63:
            raise Refused(f"{name} has numbers that do not fit int64")
        return array.astype(np.int64)
    raise Refused(f"{name} is of {array.dtype}: turn it into numbers first")


def check_values(arrays: Arrays, classes: int | None = None) -> None:
    """Every number is finite, and with `classes` every label of `y` is below that. Raises Refused, naming the row."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
            raise Refused(f"row {row} of {name} has a number that is not finite in {array.dtype}: correct or drop it")
    if classes is not None:
        check_labels(arrays, {"y": [Range(0, classes, IGNORED)]})


def columns_of(arrays: Arrays, classes: int | None = None) -> dict[str, Column]:
    """Returns each input's element type and row shape for the manifest. `classes` of the labels `y`, where given.

    `y` is labels if it holds integers from 0, of more dimensions where their classes are given.
    """
    found: dict[str, Column] = {}
    for name, array in sorted(arrays.items()):
        flat = array.ndim == 1 or classes is not None
        labels = name == "y" and flat and array.dtype.kind in "iu" and int(array.min()) >= 0
        own = classes or int(array.max()) + 1 if labels else None
        if own is not None and classes is None and own > LABELS_AT_MOST:
            own = None
        found[name] = Column(dtype=array.dtype.name, shape=array.shape[1:], classes=own)
    return found
