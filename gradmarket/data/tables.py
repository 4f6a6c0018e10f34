"""Converts columns of an Arrow table to arrays: numbers, booleans, and lists of these with equal length."""

import numpy as np
import pyarrow as pa

from gradmarket.market.errors import Refused


def arrays_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Returns every column by name. Raises Refused and names a column of another type."""
    return {name: _array(name, table.column(name)) for name in table.column_names}


def _array(name: str, column: pa.ChunkedArray) -> np.ndarray:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], column.type)
    shape = [len(values)]
    while True:
        if values.null_count:
            raise Refused(f"column {name!r} has {values.null_count} missing values: fill or drop them first")
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
