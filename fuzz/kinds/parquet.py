"""Parquet: footers and page headers whose fields lie, columns of other types, levels, encodings and compressions."""

import io
from functools import cache
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from fuzz import thrift
from fuzz.case import Case
from fuzz.kinds._arrays import Arrays, arrays, declared, otherwise, read_as
from fuzz.splices import INTEGERS, spliced
from gradmarket.market.errors import TensorsRefused
from graphdoc.formats import format_of

REFUSED: Final = TensorsRefused
HONEST: Final = 40
"""Files that everything begins with; writing one anew for each case would cost more than reading it."""
_MAGIC: Final = 4
_TAIL: Final = 8
_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"compression": "none"}, {"compression": "gzip"}, {"compression": "brotli"}, {"compression": "lz4"},
    {"compression": "zstd"}, {"row_group_size": 1}, {"data_page_version": "2.0"}, {"use_dictionary": False},
    {"store_schema": False}, {"write_page_index": True}, {"column_encoding": "DELTA_BINARY_PACKED"},
    {"column_encoding": "BYTE_STREAM_SPLIT"}, {"write_page_checksum": True}, {"data_page_size": 1},
)  # fmt: skip
_TYPES: Final = (
    pa.float64(), pa.int8(), pa.uint64(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("ns", "UTC"), pa.null(),
    pa.decimal128(20, 3), pa.list_(pa.list_(pa.int64())), pa.list_(pa.float32(), 2), pa.struct({"x": pa.int64()}),
    pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int32(), pa.string()), pa.large_list(pa.int64()), pa.time32("s"),
)  # fmt: skip
EXTENSION: Final = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": b"\x80\x04."}


def case(chance: Random) -> Case:
    draw = chance.random()
    if draw < 0.03:
        return _of_another_type(chance)
    data, right = _honest(chance.randrange(HONEST))
    change = chance.choice(_CHANGES)
    return Case(change(data, chance), otherwise(right, chance))


def read(case: Case) -> Arrays:
    return read_as("parquet", case)


@cache
def _honest(number: int) -> tuple[bytes, Any]:
    """Half of them as our own writer has them, half as others may."""
    chance = Random(f"honest/{number}")
    found = arrays(chance)
    if number % 2:
        return format_of("parquet").write(found), declared(found)
    table = pa.table({name: _column(array) for name, array in found.items()})
    options = dict(_OPTIONS[number // 2 % len(_OPTIONS)])
    encoding = options.pop("column_encoding", None)
    if encoding:
        floats = encoding == "BYTE_STREAM_SPLIT"
        found = {"x": np.arange(4, dtype=np.float32 if floats else np.int64)}
        table, options = pa.table(found), {"column_encoding": {"x": encoding}, "use_dictionary": False}
    return _written(table, **options), declared(found)


def _column(array: np.ndarray) -> Any:
    flat = pa.array(array.reshape(-1))
    if array.ndim == 1:
        return flat
    size = array[0].size
    return pa.ListArray.from_arrays(pa.array(range(0, flat.__len__() + 1, size), pa.int32()), flat)


def _written(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _of_another_type(chance: Random) -> Case:
    kind = chance.choice(_TYPES)
    field = pa.field("x", kind, metadata=EXTENSION if chance.random() < 0.5 else None)
    missing = pa.array([None, None, None], kind)
    return Case(_written(pa.Table.from_arrays([missing], schema=pa.schema([field]))), {"x": ((3,), "int64")})


def _same(data: bytes, chance: Random) -> bytes:
    return data


def _split(data: bytes) -> tuple[bytes, bytes]:
    """(magic and pages, footer)."""
    start = len(data) - _TAIL - int.from_bytes(data[-_TAIL:-_MAGIC], "little")
    return data[:start], data[start:-_TAIL]


def _joined(pages: bytes, footer: bytes, length: int | None = None) -> bytes:
    stated = len(footer) if length is None else length & (2**32 - 1)
    return pages + footer + stated.to_bytes(4, "little") + b"PAR1"


def _footer(data: bytes, chance: Random) -> bytes:
    pages, footer = _split(data)
    fields = thrift.read_struct(io.BytesIO(footer))
    for _ in range(chance.choice((1, 1, 2))):
        fields = thrift.lied(fields, chance)
    return _joined(pages, thrift.written(fields))


def _page(data: bytes, chance: Random) -> bytes:
    """The first page's header, written in as many bytes as it had or more, or with the page after it damaged."""
    pages, footer = _split(data)
    file = io.BytesIO(pages)
    file.seek(_MAGIC)
    fields = thrift.lied(thrift.read_struct(file), chance)
    return _joined(pages[:_MAGIC] + thrift.written(fields) + pages[file.tell() :], footer)


def _bodies(data: bytes, chance: Random) -> bytes:
    pages, footer = _split(data)
    return _joined(spliced(pages, chance), footer)


def _length(data: bytes, chance: Random) -> bytes:
    pages, footer = _split(data)
    return _joined(pages, footer, chance.choice((len(footer) - 1, len(footer) + 1, len(data), *INTEGERS)))


_CHANGES: Final = (
    _same, _footer, _footer, _footer, _footer, _page, _page, _page, _bodies, _bodies, _length, spliced, spliced,
)  # fmt: skip
