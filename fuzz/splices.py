"""Changes to bytes without regard to their meaning: cut, lengthened, flipped, repeated, numbers put anywhere."""

from collections.abc import Callable
from random import Random
from typing import Final

INTEGERS: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
"""Where counters, signs and casts turn over."""


def spliced(data: bytes, chance: Random) -> bytes:
    """`data` after one to three changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice(_CHANGES)(data, chance)
    return data


def _place(data: bytes, chance: Random) -> int:
    """Anywhere; headers and footers oftener."""
    near = chance.choice((16, 64, 256, len(data)))
    place = chance.randrange(max(1, min(near, len(data))))
    return max(0, len(data) - 1 - place) if chance.random() < 0.3 else place


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _lengthened(data: bytes, chance: Random) -> bytes:
    return data + chance.choice((b"\0", b"\n", b" ", b"\xff", b"PK\x05\x06", b"PAR1")) * chance.choice((1, 8, 1000))


def _flipped(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 4))):
        changed[_place(data, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _noise(data: bytes, chance: Random) -> bytes:
    place, length = _place(data, chance), chance.choice((1, 2, 4, 8, 40))
    return data[:place] + chance.randbytes(length) + data[place + length :]


def _number(data: bytes, chance: Random) -> bytes:
    place, width = _place(data, chance), chance.choice((1, 2, 4, 8))
    number: int = chance.choice(INTEGERS) & (2 ** (8 * width) - 1)
    return data[:place] + number.to_bytes(width, chance.choice(("little", "big"))) + data[place + width :]


def _repeated(data: bytes, chance: Random) -> bytes:
    start, length = _place(data, chance), chance.choice((1, 8, 64, len(data)))
    return data[:start] + data[start : start + length] * chance.choice((2, 3, 50)) + data[start + length :]


def _removed(data: bytes, chance: Random) -> bytes:
    start = _place(data, chance)
    return data[:start] + data[start + chance.choice((1, 2, 8, 64)) :]


_CHANGES: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    _cut, _lengthened, _flipped, _flipped, _noise, _number, _number, _repeated, _removed,
)  # fmt: skip
