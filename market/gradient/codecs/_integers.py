"""Whole multiples of a power of two: the code of int8 and int4, in blocks of 64 elements.

A block's unit is 2^(e - 125 - width), with e the exponent of its largest magnitude as float32 has it, so that codes
stay below 2^(width - 1). A code is rounded to nearest, ties to even, and cut off at 2^(width - 1) - 1; it is a whole
number, and so the sum of any answers is exact. e is a byte: 1 to 254 (1 for subnormal ones too), 0 where all elements
are 0, 255 where one is NaN or infinite; such a block decodes to NaN, which the inspection refuses.

Rounding is by integers, so the bits are the same on every machine.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._compiled import INFINITE, MAGNITUDE, compiled, largest, significand

BLOCK: Final = 64
ZERO: Final = np.uint8(0)
INVALID: Final = np.uint8(255)
FURTHEST: Final = np.int32(26)
"""A significand has 24 bits: shifted so far, it and its rounding are 0."""


def blocks_of(count: int) -> int:
    return -(-count // BLOCK)


def integers(shard: Vector, width: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Returns the exponents of the blocks, and the codes of the elements, filled with 0 to whole blocks."""
    exponents = np.empty(blocks_of(shard.size), np.uint8)
    codes = np.zeros(BLOCK * exponents.size, np.int8)
    _round(shard.view(np.uint32), exponents, codes, width)
    return exponents, codes


@compiled
def _round(bits: Any, exponents: Any, codes: Any, width: Any) -> Any:
    most = np.int32((1 << (width - 1)) - 1)
    for block in range(exponents.size):
        piece = bits[block * BLOCK : (block + 1) * BLOCK]
        target = codes[block * BLOCK : (block + 1) * BLOCK]
        top = largest(piece)
        if top == np.uint32(0) or top >= INFINITE:
            exponents[block] = ZERO if top == np.uint32(0) else INVALID
            continue
        exponent = max(np.int32(top >> np.uint32(23)), np.int32(1))
        exponents[block] = np.uint8(exponent)
        for position in range(piece.size):
            own, fraction = significand(np.int32(piece[position] & MAGNITUDE))
            shift = min(exponent - own + np.int32(25 - width), FURTHEST)
            half = (np.int32(1) << (shift - np.int32(1))) - np.int32(1)
            code = min((fraction + half + ((fraction >> shift) & np.int32(1))) >> shift, most)
            sign = np.int32(piece[position] >> np.uint32(31))
            target[position] = (code ^ -sign) + sign


def values(exponents: NDArray[np.uint8], codes: NDArray[np.int8], count: int, width: int) -> Vector:
    """Returns the elements that codes stand for; every one is a float32 exactly."""
    units = np.ldexp(np.float32(1), exponents.astype(np.int32) - (125 + width)).astype(np.float32)
    units[exponents == INVALID] = np.nan
    units[exponents == ZERO] = 0
    if codes.size % BLOCK:
        codes = np.pad(codes, (0, -codes.size % BLOCK))
    shard = np.empty(codes.size, np.float32)
    np.multiply(codes.reshape(-1, BLOCK), units[:, None], out=shard.reshape(-1, BLOCK))
    return shard[:count]
