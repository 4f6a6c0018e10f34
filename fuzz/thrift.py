"""Thrift's compact protocol, as Parquet writes its footer and page headers in it: read into fields, changed, written.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from copy import deepcopy
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any, Final

from fuzz.splices import INTEGERS

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_NUMBERS: Final = (I16, I32, I64)


@dataclass
class Field:
    """One field of a struct, or one element of a list, whose `number` is 0."""

    number: int
    kind: int
    value: Any
    element: int = 0
    """The type of a list's elements."""


def read_struct(file: BytesIO) -> list[Field]:
    """The struct at the file's place, which is left after it. Raises IndexError, ValueError."""
    fields, number = [], 0
    while kind := (head := file.read(1)[0]) & 15:
        number = number + (head >> 4) if head >> 4 else _unzigzag(_read_varint(file))
        fields.append(_read_field(number, kind, file))
    return fields


def _read_field(number: int, kind: int, file: BytesIO) -> Field:
    if kind in (TRUE, FALSE):
        return Field(number, kind, None)
    if kind in (LIST, SET):
        head = file.read(1)[0]
        count = head >> 4 if head >> 4 < 15 else _read_varint(file)
        return Field(number, kind, [_read_field(0, head & 15, file) for _ in range(count)], head & 15)
    return Field(number, kind, _read_value(kind, file))


def _read_value(kind: int, file: BytesIO) -> Any:
    if kind in _NUMBERS:
        return _unzigzag(_read_varint(file))
    if kind == STRUCT:
        return read_struct(file)
    if kind not in (BYTE, DOUBLE, BINARY):
        raise ValueError(f"no thrift type {kind} stands in Parquet")
    return file.read({BYTE: 1, DOUBLE: 8}.get(kind) or _read_varint(file))


def _read_varint(file: BytesIO) -> int:
    result, shift = 0, 0
    while True:
        byte = file.read(1)[0]
        result |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return result


def _unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def written(fields: list[Field]) -> bytes:
    """The struct's bytes, each field with its number in full."""
    return b"".join(bytes((field.kind,)) + _zigzag(field.number) + _written(field) for field in fields) + b"\0"


def _written(field: Field) -> bytes:
    if field.kind in (TRUE, FALSE):
        return b""
    if field.kind in (LIST, SET):
        head = bytes((0xF0 | field.element,)) + _varint(len(field.value))
        return head + b"".join(_written(element) for element in field.value)
    if field.kind in _NUMBERS:
        return _zigzag(field.value)
    if field.kind == STRUCT:
        return written(field.value)
    return (_varint(len(field.value)) if field.kind == BINARY else b"") + bytes(field.value)


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) if number >= 0 else (-number << 1) - 1)


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))


def lied(fields: list[Field], chance: Random) -> list[Field]:
    """The struct with one field somewhere in it changed, gone, double or of another type."""
    places = list(_places(fields))
    holder, at = chance.choice(places)
    field: Field = holder[at]
    draw = chance.random()
    if draw < 0.65:
        _change(field, chance)
    elif draw < 0.75:
        del holder[at]
    elif draw < 0.85:
        other, place = chance.choice(places)
        holder.insert(at, deepcopy(other[place]))
    elif draw < 0.9:
        holder[at : at + 1] = [field] * chance.choice((2, 3, 300))
    else:
        field.number, field.kind, field.value = (chance.choice((field.number, 1, 99)), I64, chance.choice(INTEGERS))
    return fields


def _places(fields: list[Field]) -> Any:
    for at, field in enumerate(fields):
        yield fields, at
        if field.kind in (STRUCT, LIST, SET):
            yield from _places(field.value)


def _change(field: Field, chance: Random) -> None:
    if field.kind in _NUMBERS:
        near = (field.value + 1, field.value - 1, -field.value, chance.randrange(12))
        field.value = chance.choice((*near, *INTEGERS, -(2**63)))
    elif field.kind in (TRUE, FALSE):
        field.kind = TRUE + FALSE - field.kind
    elif field.kind == BINARY:
        field.value = chance.choice(
            (b"", b"\xff\xfe", b"x", field.value * 2, b"a" * 5000, b"\0", bytes(field.value)[:-1])
        )
    elif field.kind in (LIST, SET):
        field.value = field.value[: chance.randrange(len(field.value) + 1)] * chance.choice((1, 2, 40))
