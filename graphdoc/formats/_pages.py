"""Reads and checks a Parquet file's footer and page headers before Arrow unpacks any page.

Arrow (26.0) allocates any size that a page claims, and ends the process where it evaluates a column's contradictory
statistics. So footer and page headers are read here. Their fields are those of parquet.thrift.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from graphdoc.errors import TensorsRefused
from graphdoc.formats._thrift import I32, I64, STRUCT, Cursor, Struct, find_struct_field, list_struct_elements

MAGIC: Final = b"PAR1"
FOOTER_LIMIT: Final = 2**20
PAGES_LIMIT: Final = 50_000
_TAIL: Final = 8
_SLACK: Final = 2**16
_PAGE_SLACK: Final = 1024
_COLUMNS, _META, _ROW_GROUPS = 1, 3, 4
_NUM_VALUES, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_VALUE_HEADERS: Final = (5, 7, 8)
"""Fields of the page header for data, dictionary and v2 data pages. Their first field counts the values."""


@dataclass(frozen=True)
class Chunk:
    """The pages of one column in one row group."""

    column: int
    values: int
    start: int
    end: int


def list_column_chunks(data: bytes) -> list[Chunk]:
    """Returns the column chunks that the footer lists. Raises TensorsRefused."""
    length = int.from_bytes(data[-_TAIL : -len(MAGIC)], "little")
    start = len(data) - _TAIL - length
    if data[: len(MAGIC)] != MAGIC or data[-len(MAGIC) :] != MAGIC or start < len(MAGIC) or length > FOOTER_LIMIT:
        raise TensorsRefused(f"it is no Parquet with a footer of at most {FOOTER_LIMIT} bytes")
    footer = Cursor(data, start, start + length).struct()
    groups = list_struct_elements(footer, _ROW_GROUPS)
    return [
        _parse_column_chunk(place, raw, start)
        for group in groups
        for place, raw in enumerate(list_struct_elements(group, _COLUMNS))
    ]


def _parse_column_chunk(column: int, raw: Struct, limit: int) -> Chunk:
    meta = find_struct_field(raw, _META, STRUCT) or {}
    values, packed, start = (
        find_struct_field(meta, number, I64) for number in (_NUM_VALUES, _COMPRESSED, _DATA_OFFSET)
    )
    if values is None or packed is None or start is None or min(values, packed, start) < 0:
        raise TensorsRefused("a column has no number of values, no bytes or no place")
    dictionary = find_struct_field(meta, _DICTIONARY_OFFSET, I64)
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    if start < len(MAGIC) or start + packed > limit:
        raise TensorsRefused("a column's pages lie outside of the file")
    return Chunk(column, values, start, start + packed)


def check_pages(data: bytes, chunks: list[Chunk], widths: list[int]) -> None:
    """Raises TensorsRefused where a column unpacks to much more than its values take at `widths` bytes each."""
    pages = 0
    for chunk in chunks:
        allowed = chunk.values * (2 * widths[chunk.column] + 5) + _SLACK
        for values, unpacked in _parse_page_sizes(data, chunk):
            pages += 1
            allowed -= unpacked - _PAGE_SLACK
            if allowed < 0 or values > chunk.values:
                raise TensorsRefused(f"a page of {values} values unpacks to {unpacked} bytes, of {chunk.values} values")
            if pages > PAGES_LIMIT:
                raise TensorsRefused(f"it has more than {PAGES_LIMIT} pages")


def _parse_page_sizes(data: bytes, chunk: Chunk) -> Iterator[tuple[int, int]]:
    """Yields (values, unpacked bytes) of each page."""
    place = chunk.start
    while place < chunk.end:
        cursor = Cursor(data, place, chunk.end)
        header = cursor.struct()
        unpacked, packed = find_struct_field(header, _PAGE_UNPACKED, I32), find_struct_field(header, _PAGE_PACKED, I32)
        values = [find_struct_field(part, 1, I32) or 0 for part in _value_headers(header)]
        if unpacked is None or packed is None or min(unpacked, packed, *values, 0) < 0:
            raise TensorsRefused("a page has no size, or a negative one")
        yield max(values, default=0), unpacked
        place = cursor.place + packed
    if place != chunk.end:
        raise TensorsRefused("a column's last page does not end with it")


def _value_headers(header: Struct) -> Iterator[Struct]:
    for number in _VALUE_HEADERS:
        part = find_struct_field(header, number, STRUCT)
        if part is not None:
            yield part
