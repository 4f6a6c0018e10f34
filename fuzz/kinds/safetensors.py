"""safetensors: the header's fields, offsets that overlap or run away, lengths that lie."""

import json
from random import Random
from typing import Any, Final

from fuzz.case import Case
from fuzz.kinds._arrays import Arrays, arrays, declared, otherwise, read_as
from fuzz.splices import INTEGERS, spliced
from fuzz.values import changed, dumped, misspelt
from gradmarket.market.errors import TensorsRefused
from graphdoc.formats import format_of

REFUSED: Final = TensorsRefused
_LENGTH: Final = 8
_FILE_DTYPES: Final = ("F64", "F16", "BF16", "F32", "I64", "U64", "BOOL", "F8_E4M3", "C64", "O")


def case(chance: Random) -> Case:
    found = arrays(chance)
    whole = format_of("safetensors").write(found)
    return Case(chance.choice(_CHANGES)(whole, chance), otherwise(declared(found), chance))


def read(case: Case) -> Arrays:
    return read_as("safetensors", case)


def _split(data: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    return data[_LENGTH:end], data[end:]


def _joined(header: bytes, body: bytes, length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(_LENGTH, "little") + header + body


def _same(data: bytes, chance: Random) -> bytes:
    return data


def _fields(data: bytes, chance: Random) -> bytes:
    header, body = _split(data)
    return _joined(dumped(changed(json.loads(header), chance)), body)


def _described(data: bytes, chance: Random) -> bytes:
    """One array's description, each field of which stays of its type."""
    header, body = _split(data)
    entries: dict[str, dict[str, Any]] = json.loads(header)
    entry = chance.choice(list(entries.values()))
    start, end = entry["data_offsets"]
    entry.update(
        chance.choice(
            (
                {"dtype": chance.choice(_FILE_DTYPES)},
                {"data_offsets": [chance.choice((0, start, start + 1)), chance.choice((end, end - 1, *INTEGERS))]},
                {"data_offsets": [end, start]},
                {"shape": [*entry["shape"], chance.choice((0, 1, 2**47, 2**48))]},
                {"shape": [2**24] * chance.randrange(1, 12)},
            )
        )
    )
    return _joined(dumped(entries), body)


def _text(data: bytes, chance: Random) -> bytes:
    header, body = _split(data)
    return _joined(misspelt(header, chance), body)


def _length(data: bytes, chance: Random) -> bytes:
    header, body = _split(data)
    return _joined(header, body, chance.choice((len(header) - 1, len(header) + 1, *INTEGERS)))


def _padded(data: bytes, chance: Random) -> bytes:
    header, body = _split(data)
    return _joined(header + chance.choice((b" ", b"\n", b"\0", b"{}")) * chance.choice((1, 8, 4096)), body)


_CHANGES: Final = (_same, _fields, _described, _described, _text, _length, _padded, spliced)
