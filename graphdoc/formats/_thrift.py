"""Thrift's compact protocol, read strictly: input that two readers could interpret differently is refused.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Mapping
from typing import Any, Final

from graphdoc.errors import TensorsRefused

I32: Final = 5
I64: Final = 6
LIST: Final = 9
STRUCT: Final = 12
_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _BINARY, _SET = 1, 2, 3, 4, 7, 8, 10
_BITS: Final = {_I16: 16, I32: 32, I64: 64}
_DEPTH_LIMIT: Final = 16
_NUMBER_LIMIT: Final = 2**15 - 1

Struct = Mapping[int, tuple[int, Any]]
"""The kind and value of each field by its number."""


def find_struct_field(struct: Struct, number: int, kind: int) -> Any:
    """Returns the field's value, or None where it is absent. Raises TensorsRefused where it is of another kind."""
    actual, value = struct.get(number, (kind, None))
    if actual != kind:
        raise TensorsRefused(f"field {number} of a header is of kind {actual}, not {kind}")
    return value


def list_struct_elements(struct: Struct, number: int) -> list[Struct]:
    """Returns the elements of a field that is a list of structs; none where it is absent. Raises TensorsRefused."""
    elements = find_struct_field(struct, number, LIST) or []
    if not all(isinstance(element, dict) for element in elements):
        raise TensorsRefused(f"field {number} of a header is no list of structs")
    return list(elements)


class Cursor:
    """Reads values from bytes at a position that advances. Raises TensorsRefused."""

    def __init__(self, data: bytes, place: int, end: int) -> None:
        self._data = data
        self.place = place
        self._end = end

    def struct(self, depth: int = 0) -> Struct:
        """Returns the struct that begins here."""
        if depth > _DEPTH_LIMIT:
            raise TensorsRefused(f"a header is nested deeper than {_DEPTH_LIMIT}")
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while kind := (head := self._read_byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._read_integer(_I16)
            if number in fields or not 0 <= number <= _NUMBER_LIMIT:
                raise TensorsRefused(f"a header has the field {number} twice, or an unknown one")
            fields[number] = kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._read_value(kind, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in _BITS:
            return self._read_integer(kind)
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, _SET):
            return self._read_list(depth + 1)
        if kind not in (_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY):
            raise TensorsRefused(f"a header has a field of kind {kind}")
        return self._read_bytes(self._read_varint() if kind == _BINARY else 8 if kind == _DOUBLE else 1)

    def _read_list(self, depth: int) -> list[Any]:
        """Returns a list of structs; for a non-empty list of anything else, which no caller reads, a single None.

        A list that grows by an untrusted length costs more than reading it: in a fragmented heap, seconds for a footer.
        """
        head = self._read_byte()
        count = head >> 4 if head >> 4 < 15 else self._read_varint()
        if count > self._end - self.place:
            raise TensorsRefused(f"a list of {count} elements does not end")
        kind = head & 15
        if kind == STRUCT:
            return [self.struct(depth + 1) for _ in range(count)]
        for _ in range(count):
            self._read_value(kind, depth)
        return [None] if count else []

    def _read_integer(self, kind: int) -> int:
        number = self._read_varint()
        if number >> _BITS[kind]:
            raise TensorsRefused(f"a header has a number of more than {_BITS[kind]} bits")
        return (number >> 1) ^ -(number & 1)

    def _read_varint(self) -> int:
        result = shift = 0
        while shift < 70:
            byte = self._read_byte()
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
        raise TensorsRefused("a header has a number of more than 64 bits")

    def _read_byte(self) -> int:
        if self.place >= self._end:
            raise TensorsRefused("a header does not end")
        self.place += 1
        return self._data[self.place - 1]

    def _read_bytes(self, count: int) -> bytes:
        if count > self._end - self.place:
            raise TensorsRefused("a header does not end")
        self.place += count
        return self._data[self.place - count : self.place]
