"""Whole multiples of a power of two: the code of int8 and int4, in blocks of 64 elements.

A block's unit is 2^(e - 125 - width), with e the exponent of its largest magnitude as float32 has it, so that codes
stay below 2^(width - 1). A code is rounded to nearest, ties to even, and cut off at 2^(width - 1) - 1; it is a whole
number, and so the sum of any answers is exact. e is a byte: 1 to 254 (1 for subnormal ones too), 0 where all elements
are 0, 255 where one is NaN or infinite; such a block decodes to NaN, which the inspection refuses.

Rounding is by integers, so the bits are the same on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import BLOCK, INVALID, ZERO, round_integers


def blocks_of(count: int) -> int:
    return -(-count // BLOCK)


def encode_integers(shard: Vector, width: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Returns the exponents of the blocks, and the codes of the elements, filled with 0 to whole blocks."""
    exponents = np.empty(blocks_of(shard.size), np.uint8)
    codes = np.zeros(BLOCK * exponents.size, np.int8)
    round_integers(shard.view(np.uint32), exponents, codes, width)
    return exponents, codes


def decode_integers(exponents: NDArray[np.uint8], codes: NDArray[np.int8], count: int, width: int) -> Vector:
    """Returns the elements that codes stand for; every one is a float32 exactly."""
    units = np.ldexp(np.float32(1), exponents.astype(np.int32) - (125 + width)).astype(np.float32)
    units[exponents == INVALID] = np.nan
    units[exponents == ZERO] = 0
    if codes.size % BLOCK:
        codes = np.pad(codes, (0, -codes.size % BLOCK))
    shard = np.empty(codes.size, np.float32)
    np.multiply(codes.reshape(-1, BLOCK), units[:, None], out=shard.reshape(-1, BLOCK))
    return shard[:count]
