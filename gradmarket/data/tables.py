"""Converts columns of an Arrow table to arrays: numbers, booleans, and lists of these with equal length."""

import json
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from gradmarket.market.errors import Refused

INT64_END: Final = 2.0**63


def arrays_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Returns every column by name, but for the index that pandas writes beside them.

    Raises Refused and names a column of another type, or of another's name.
    """
    index = _index_columns(table.schema)
    names = [name for name in table.column_names if name not in index]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise Refused(f"two columns are named {twice!r}: rename one")
    return {name: _convert_to_array(name, table.column(name)) for name in names}


def _index_columns(schema: pa.Schema) -> set[str]:
    """Returns the columns that pandas read as a table's index, by its own metadata of the schema; no other tells."""
    try:
        told = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    except (ValueError, RecursionError):
        return set()
    columns = told.get("index_columns") if isinstance(told, dict) else None
    return {name for name in columns if isinstance(name, str)} if isinstance(columns, list) else set()


def check_header(path: Path, table: pa.Table) -> pa.Table:
    """Returns a CSV file's columns without an unnamed index. Raises Refused where its first row is no header."""
    names = table.column_names
    if names and all(_is_number(name) for name in names):
        raise Refused(f"{path}: the first row holds numbers ({', '.join(names)[:80]}): put a row of names above it")
    if names and not names[0]:
        counted = table.column(0).to_pylist() == list(range(len(table)))
        if not counted:
            raise Refused(f"{path}: the first column has no name: give it one in the first row, or drop it")
        table = table.remove_column(0)
    for place, name in enumerate(table.column_names):
        _check_whole(path, name, table.column(place))
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_whole(path: Path, name: str, column: pa.ChunkedArray) -> None:
    """Raises Refused for whole numbers beyond int64, which a reader of CSV takes as floats."""
    if not pa.types.is_floating(column.type) or not len(column):
        return
    numbers = column.to_numpy()
    if np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all():
        largest = float(np.abs(numbers).max())
        if INT64_END <= largest < 2 * INT64_END:
            raise Refused(f"{path}: column {name!r} has whole numbers beyond int64: write a code of fewer digits")


def _convert_to_array(name: str, column: pa.ChunkedArray) -> np.ndarray:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.read_chunks) if values.num_chunks else pa.array([], column.type)
    shape = [len(values)]
    while True:
        if values.null_count:
            raise Refused(f"column {name!r} has {values.null_count} missing values: fill or drop them first")
        if isinstance(values, pa.FixedShapeTensorArray):
            return np.asarray(values.to_numpy_ndarray())
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if not _is_list(values.type):
            break
        flat = values.flatten()
        lengths = set(values.value_lengths().to_pylist())
        if len(lengths) > 1:
            raise Refused(f"column {name!r} has lists of different lengths, {min(lengths)} to {max(lengths)}")
        shape.append(lengths.pop() if lengths else 0)
        values = flat
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise Refused(f"column {name!r} is {kind}: turn it into numbers first")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
