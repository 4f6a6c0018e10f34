"""Sign and three bits of exponent for each element, and a power of two for each block of 64 (E3M0): 4.125 bits.

A code c from 1 to 7 stands for 2^(e - 134 + c), with e the exponent of the block's largest magnitude, rounded, as
float32 has it; 0 stands for 0. Magnitudes are rounded to the nearest of these, ties to the larger; those below 2^-126
are 0. e is a byte: 1 to 254, 0 where all codes are 0, 255 where an element is NaN or infinite. The bytes of a shard are
the exponents of its blocks, then the codes with the sign as their fourth bit, two a byte; a last, shorter block is
filled with 0.

The format is that of Streaming DiLoCo (Douillard et al. 2025), whose blocks and scales are not published.
"""

from typing import Any, Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._compiled import INFINITE, MAGNITUDE, compiled, largest
from gradmarket.market.gradient.codecs._integers import BLOCK, INVALID, blocks_of
from gradmarket.market.gradient.codecs._nibbles import joined, split
from gradmarket.market.gradient.codecs._wire import parts

GRADIENTS_ONLY: Final = True
ROUND: Final = np.int32(1 << 22)
"""Half of a significand's first place: added to a magnitude's bits it rounds to a power of two."""
CODES: Final = 7
NEGATIVE: Final = 8


def packed_bytes(count: int) -> int:
    return blocks_of(count) * (1 + BLOCK // 2)


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    exponents = np.empty(blocks_of(shard.size), np.uint8)
    codes = np.zeros(BLOCK * exponents.size, np.uint8)
    _pack(shard.view(np.uint32), exponents, codes)
    return exponents.tobytes() + joined(codes).tobytes()


@compiled
def _pack(bits: Any, exponents: Any, codes: Any) -> Any:
    for block in range(exponents.size):
        piece = bits[block * BLOCK : (block + 1) * BLOCK]
        target = codes[block * BLOCK : (block + 1) * BLOCK]
        top = largest(piece)
        if top >= INFINITE:
            exponents[block] = INVALID
            continue
        exponent = min((np.int32(top) + ROUND) >> np.int32(23), np.int32(254))
        exponents[block] = np.uint8(exponent)
        if exponent == 0:
            continue
        least = max(exponent - np.int32(7), np.int32(1)) << np.int32(23)
        for position in range(piece.size):
            magnitude = np.int32(piece[position] & MAGNITUDE)
            code = min(((magnitude + ROUND) >> np.int32(23)) - exponent + np.int32(7), np.int32(7))
            code = max(code, np.int32(1)) * np.int32(magnitude >= least)
            target[position] = np.uint8(code + np.int32(piece[position] >> np.uint32(31)) * 8 * np.int32(code > 0))


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    blocks = blocks_of(count)
    exponents, pairs = parts(data, packed_bytes(count), ("u1", blocks), ("u1", blocks * BLOCK // 2))
    codes = split(pairs, count)
    if (codes == NEGATIVE).any():
        raise PayloadRefused("a code of fp4 is a negative 0")
    shard = np.empty(codes.size, np.float32)
    _unpack(exponents, codes, _powers(), shard)
    return shard[:count]


def _powers() -> Vector:
    """Returns the values of all codes under all exponents; float32 of shape (256, 16)."""
    exponents, codes = np.arange(255)[:, None], np.arange(1, CODES + 1)[None]
    table = np.zeros((256, 16), np.float32)
    table[:INVALID, 1 : CODES + 1] = np.ldexp(1.0, exponents - 134 + codes)
    table[:, NEGATIVE + 1 :] = -table[:, 1 : CODES + 1]
    table[0], table[INVALID] = 0, np.nan
    return table


@compiled
def _unpack(exponents: Any, codes: Any, powers: Any, shard: Any) -> Any:
    for block in range(exponents.size):
        values = powers[exponents[block]]
        for position in range(block * BLOCK, (block + 1) * BLOCK):
            shard[position] = values[codes[position]]
