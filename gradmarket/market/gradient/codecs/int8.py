"""Eight bits an element, and a power of two for each block of 64: 8.125 bits an element.

The bytes of a shard are the exponents of its blocks, then one signed byte for each element: `_integers`.
"""

from typing import Final

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._wire import blocks_of, decode_integers, encode_integers, split_arrays

GRADIENTS_ONLY: Final = True
WIDTH: Final = 8
LEAST: Final = -128
"""The code that no honest element has."""


def packed_bytes(count: int) -> int:
    return blocks_of(count) + count


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    exponents, codes = encode_integers(shard, WIDTH)
    return exponents.tobytes() + codes[: shard.size].tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    exponents, codes = split_arrays(data, packed_bytes(count), ("u1", blocks_of(count)), ("i1", count))
    if codes.min(initial=0) == LEAST:
        raise PayloadRefused(f"{LEAST} is no code of int8")
    return decode_integers(exponents, codes, count, WIDTH)
