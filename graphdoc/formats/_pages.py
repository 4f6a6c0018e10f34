"""Reads and checks a Parquet file's footer and page headers before Arrow unpacks any page.

Arrow (26.0) allocates any size that a page claims, and ends the process where it evaluates a column's contradictory
statistics. So footer and page headers are read here. Their fields are those of parquet.thrift.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from dataclasses import dataclass
from typing import Final

from graphdoc.errors import TensorsRefused
from graphdoc.formats._thrift import I32, I64, STRUCT, Cursor, find_struct_field, list_struct_elements

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
    chunks = []
    for group in list_struct_elements(footer, _ROW_GROUPS):
        for column, raw in enumerate(list_struct_elements(group, _COLUMNS)):
            meta = find_struct_field(raw, _META, STRUCT) or {}
            values, packed, first = (
                find_struct_field(meta, number, I64) for number in (_NUM_VALUES, _COMPRESSED, _DATA_OFFSET)
            )
            if values is None or packed is None or first is None or min(values, packed, first) < 0:
                raise TensorsRefused("a column has no number of values, no bytes or no place")
            dictionary = find_struct_field(meta, _DICTIONARY_OFFSET, I64)
            if dictionary is not None and 0 < dictionary < first:
                first = dictionary
            if first < len(MAGIC) or first + packed > start:
                raise TensorsRefused("a column's pages lie outside of the file")
            chunks.append(Chunk(column, values, first, first + packed))
    return chunks


def check_pages(data: bytes, chunks: list[Chunk], widths: list[int]) -> None:
    """Raises TensorsRefused where a column unpacks to much more than its values take at `widths` bytes each."""
    pages = 0
    for chunk in chunks:
        allowed = chunk.values * (2 * widths[chunk.column] + 5) + _SLACK
        place = chunk.start
        while place < chunk.end:
            cursor = Cursor(data, place, chunk.end)
            header = cursor.struct()
            unpacked, packed = (find_struct_field(header, number, I32) for number in (_PAGE_UNPACKED, _PAGE_PACKED))
            parts = (find_struct_field(header, number, STRUCT) for number in _VALUE_HEADERS)
            counts = [find_struct_field(part, 1, I32) or 0 for part in parts if part is not None]
            if unpacked is None or packed is None or min(unpacked, packed, *counts, 0) < 0:
                raise TensorsRefused("a page has no size, or a negative one")
            values = max(counts, default=0)
            pages += 1
            allowed -= unpacked - _PAGE_SLACK
            if allowed < 0 or values > chunk.values:
                raise TensorsRefused(f"a page of {values} values unpacks to {unpacked} bytes, of {chunk.values} values")
            if pages > PAGES_LIMIT:
                raise TensorsRefused(f"it has more than {PAGES_LIMIT} pages")
            place = cursor.place + packed
        if place != chunk.end:
            raise TensorsRefused("a column's last page does not end with it")
