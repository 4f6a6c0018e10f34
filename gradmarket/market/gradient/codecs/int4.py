"""Four bits an element, and a power of two for each block of 64: 4.125 bits an element.

The bytes of a shard are the exponents of its blocks, then the codes of `_integers` in two's complement, two a byte, the
first in the lower half; a last, shorter block is filled with 0.
"""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import BLOCK
from gradmarket.market.gradient.codecs._wire import (
    blocks_of,
    decode_integers,
    encode_integers,
    join_nibbles,
    split_arrays,
    split_nibbles,
)

GRADIENTS_ONLY: Final = True
WIDTH: Final = 4
LEAST: Final = -8
"""The code that no honest element has."""


def packed_bytes(count: int) -> int:
    return blocks_of(count) * (1 + BLOCK // 2)


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    exponents, codes = encode_integers(shard, WIDTH)
    return exponents.tobytes() + join_nibbles(codes.view(np.uint8)).tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    blocks = blocks_of(count)
    exponents, pairs = split_arrays(data, packed_bytes(count), ("u1", blocks), ("u1", blocks * BLOCK // 2))
    codes = split_nibbles(pairs, count).view(np.int8)
    codes = (codes ^ np.int8(8)) - np.int8(8)
    if codes.min(initial=0) == LEAST:
        raise PayloadRefused(f"{LEAST} is no code of int4")
    return decode_integers(exponents, codes, count, WIDTH)
