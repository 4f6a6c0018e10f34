"""Sign and three bits of exponent for each element, and a power of two for each block of 64 (E3M0): 4.125 bits.

A code c from 1 to 7 stands for 2^(e - 134 + c), with e the exponent of the block's largest magnitude, rounded, as
float32 has it; 0 stands for 0. Magnitudes are rounded to the nearest of these, ties to the larger; those below 2^-126
are 0. e is a byte: 1 to 254, 0 where all codes are 0, 255 where an element is NaN or infinite. The bytes of a shard are
the exponents of its blocks, then the codes with the sign as their fourth bit, two a byte; a last, shorter block is
filled with 0.

The format is that of Streaming DiLoCo (Douillard et al. 2025), whose blocks and scales are not published.
"""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import BLOCK, INVALID, pack_powers, unpack_powers
from gradmarket.market.gradient.codecs._wire import blocks_of, join_nibbles, split_arrays, split_nibbles

GRADIENTS_ONLY: Final = True
CODES: Final = 7
NEGATIVE: Final = 8


def packed_bytes(count: int) -> int:
    return blocks_of(count) * (1 + BLOCK // 2)


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    exponents = np.empty(blocks_of(shard.size), np.uint8)
    codes = np.zeros(BLOCK * exponents.size, np.uint8)
    pack_powers(shard.view(np.uint32), exponents, codes)
    return exponents.tobytes() + join_nibbles(codes).tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    blocks = blocks_of(count)
    exponents, pairs = split_arrays(data, packed_bytes(count), ("u1", blocks), ("u1", blocks * BLOCK // 2))
    codes = split_nibbles(pairs, count)
    if (codes == NEGATIVE).any():
        raise PayloadRefused("a code of fp4 is a negative 0")
    shard = np.empty(codes.size, np.float32)
    table = np.zeros((256, 16), np.float32)  # the values of all codes under all exponents
    table[:INVALID, 1 : CODES + 1] = np.ldexp(1.0, np.arange(255)[:, None] - 134 + np.arange(1, CODES + 1)[None])
    table[:, NEGATIVE + 1 :] = -table[:, 1 : CODES + 1]
    table[0], table[INVALID] = 0, np.nan
    unpack_powers(exponents, codes, table, shard)
    return shard[:count]
