"""JSON lines: rows of other types, ranks and names, tokens that are no JSON, lines too many."""

import json
from random import Random
from typing import Final

from fuzz.case import Case
from fuzz.kinds._arrays import Arrays, arrays, declared, otherwise, read_as
from fuzz.splices import spliced
from fuzz.values import changed, dumped, misspelt
from gradmarket.market.errors import TensorsRefused
from graphdoc.formats import format_of

REFUSED: Final = TensorsRefused


def case(chance: Random) -> Case:
    found = arrays(chance)
    whole = format_of("jsonl").write(found)
    return Case(chance.choice(_CHANGES)(whole, chance), otherwise(declared(found), chance))


def read(case: Case) -> Arrays:
    return read_as("jsonl", case)


def _same(data: bytes, chance: Random) -> bytes:
    return data


def _row(data: bytes, chance: Random) -> bytes:
    lines = data.splitlines()
    place = chance.randrange(len(lines))
    lines[place] = dumped(changed(json.loads(lines[place]), chance))
    return b"\n".join(lines) + b"\n"


def _text(data: bytes, chance: Random) -> bytes:
    lines = data.splitlines()
    place = chance.randrange(len(lines))
    lines[place] = misspelt(lines[place], chance)
    return b"\n".join(lines) + b"\n"


def _lines(data: bytes, chance: Random) -> bytes:
    lines = data.splitlines()
    lines.insert(chance.randrange(len(lines)), chance.choice((b"", lines[0], b"{}", b"[]", b"\r", b"\xef\xbb\xbf{}")))
    return chance.choice((b"\n", b"\r\n", b"\n\n", b"\r")).join(lines)


_CHANGES: Final = (_same, _row, _row, _text, _text, _lines, spliced)
