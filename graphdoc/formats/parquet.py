"""Apache Parquet: one flat column for each input, or one level of fixed-length lists where its rows have dimensions.

Files are written without Arrow's own schema, and read by their physical one. The claims of a file that could cost
memory are compared with the declaration before a page is read: rows, the values of every column, and the unpacked page
sizes.
"""

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from graphdoc.errors import TensorsRefused
from graphdoc.formats import Arrays
from graphdoc.formats._pages import check_pages, list_column_chunks
from graphdoc.tensors import Expected, check_dtype, check_names

_FOOTER_STRINGS: Final = 2**20
_FOOTER_ENTRIES: Final = 100_000
_BROKEN: Final = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError)


def write(arrays: Arrays) -> bytes:
    for name, array in arrays.items():
        check_dtype(name, array)
    columns = {}
    for name, array in sorted(arrays.items()):
        values = pa.array(np.ascontiguousarray(array).reshape(-1))
        size = int(np.prod(array.shape[1:]))
        columns[name] = values if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, size)
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=max(1, table.num_rows), compression="zstd", use_dictionary=False, store_schema=False
    )
    return bytes(sink.getvalue())


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    try:
        file = pq.ParquetFile(
            pa.BufferReader(data),
            arrow_extensions_enabled=False,
            thrift_string_size_limit=_FOOTER_STRINGS,
            thrift_container_size_limit=_FOOTER_ENTRIES,
        )
        check_names(file.schema_arrow.names, expected)
        # Raises TensorsRefused unless rows, types and numbers of values are as declared
        metadata, schema = file.metadata, file.schema_arrow
        for name, (shape, dtype) in expected.items():
            kind = schema.field(name).type
            element = kind.value_type if len(shape) > 1 and _is_list(kind) else kind
            if element != pa.from_numpy_dtype(np.dtype(dtype)) or _is_list(kind) != (len(shape) > 1):
                raise TensorsRefused(f"{name} is {str(kind)[:100]}, not {dtype}{list(shape[1:])}")
            if metadata.num_rows != shape[0]:
                raise TensorsRefused(f"it has {metadata.num_rows} rows, not {shape[0]}")
        # and unless every column has its values, in pages that unpack to about as many
        column_chunks = list_column_chunks(data)
        if any(chunk.column >= len(schema.names) for chunk in column_chunks):
            raise TensorsRefused("it has columns without a name")
        for place, name in enumerate(schema.names):
            values = sum(chunk.values for chunk in column_chunks if chunk.column == place)
            declared = math.prod(expected[name][0])
            if values != declared:
                raise TensorsRefused(f"{name} has {values} values, not {declared}")
        check_pages(data, column_chunks, [np.dtype(expected[name][1]).itemsize for name in schema.names])
        table = file.read(use_threads=False)
        return {name: _parse_column(name, table.column(name), *expected[name]) for name in sorted(expected)}
    except _BROKEN as error:
        raise TensorsRefused(f"it is no Parquet of numbers: {str(error)[:200]}") from None


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind))


def _parse_column(name: str, column: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns the column's values, all rows complete. Raises TensorsRefused."""
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if whole.null_count:
        raise TensorsRefused(f"{name} has {whole.null_count} rows without a value")
    if len(shape) > 1:
        size = math.prod(shape[1:])
        lengths = {size} if pa.types.is_fixed_size_list(whole.type) else set(np.diff(whole.offsets.to_numpy()).tolist())
        if lengths - {size}:
            raise TensorsRefused(f"{name} has rows of {sorted(lengths - {size})[0]} values, not {size}")
        whole = whole.flatten()
        if whole.null_count:
            raise TensorsRefused(f"{name} has {whole.null_count} missing values")
    return np.array(whole.to_numpy(zero_copy_only=False), dtype=dtype).reshape(shape)
