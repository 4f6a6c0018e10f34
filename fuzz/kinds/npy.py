"""npy: headers that would be evaluated elsewhere, other types, orders and shapes, bytes too few or many."""

import io
import pickle
from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np

from fuzz.case import Case
from fuzz.kinds._arrays import Arrays, arrays, declared, otherwise, read_as
from fuzz.splices import spliced
from fuzz.values import WORDS
from gradmarket.market.errors import TensorsRefused
from graphdoc.formats import format_of

REFUSED: Final = TensorsRefused
_HEADERS: Final = (
    (b"False", b"True"), (b"False", b"__import__('os').abort()"), (b"'shape': (", b"'shape': (9, "),
    (b"'shape': (", b"'shape': (-"), (b"'shape': (", b"'shape': (" + b"9" * 400 + b", "), (b"<f4", b">f4"),
    (b"<f4", b"|O"), (b"<i8", b"<f8"), (b"|b1", b"|u1"), (b"|u1", b"|b1"), (b"descr", b"shape"), (b"}", b"}}"),
    (b"{", b"{'x': 1, "), (b"{", b"(" * 5000), (b" ", b"\t"), (b"\n", b"\0"), (b"'<i4'", b"[('a', '<i4')]"),
)  # fmt: skip


class Bomb:
    """Unpickled, it would open a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, ("/dev/null", "w")


def case(chance: Random) -> Case:
    found = arrays(chance)
    whole = format_of("npy").write(found)
    return Case(damaged(whole, chance), otherwise(declared(found), chance))


def read(case: Case) -> Arrays:
    return read_as("npy", case)


def damaged(data: bytes, chance: Random) -> bytes:
    """An npy file after one change."""
    return chance.choice(_CHANGES)(data, chance)


def _same(data: bytes, chance: Random) -> bytes:
    return data


def _header(data: bytes, chance: Random) -> bytes:
    """A word of the header exchanged, and its length mostly put right."""
    old, new = chance.choice((*_HEADERS, (b"<f4", chance.choice(WORDS).encode(errors="replace"))))
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].replace(old, new, 1)
    stated = min(len(header) if chance.random() < 0.9 else length + chance.choice((-1, 1, 60)), 2**16 - 1)
    return data[:8] + stated.to_bytes(2, "little") + header + data[10 + length :]


def _version(data: bytes, chance: Random) -> bytes:
    length = int.from_bytes(data[8:10], "little")
    return data[:6] + bytes((chance.choice((0, 2, 3, 9)), 0)) + length.to_bytes(4, "little") + data[10:]


def _pickled(data: bytes, chance: Random) -> bytes:
    if chance.random() < 0.3:
        return pickle.dumps(Bomb())
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([Bomb()] * chance.randrange(1, 5), dtype=object), allow_pickle=True)
    return file.getvalue()


_CHANGES: Final = (_same, _header, _header, _version, _pickled, spliced, spliced)
