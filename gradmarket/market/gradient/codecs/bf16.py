"""bfloat16, little-endian: the upper half of a float32, rounded to nearest, ties to even; 2 bytes an element.

A value closer to 2^128 than to the largest bfloat16 becomes infinite, as in IEEE 754; a NaN stays a (quiet) NaN.
"""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector, iterate_chunks

GRADIENTS_ONLY: Final = False
MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
INFINITE: Final = np.uint32(0x7F800000)
QUIET: Final = np.uint32(0x00400000)
HALF: Final = np.uint32(0x7FFF)
ONE: Final = np.uint32(1)
UPPER: Final = np.uint32(16)


def packed_bytes(count: int) -> int:
    return 2 * count


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    bits = shard.view(np.uint32)
    halves = np.empty(shard.size, "<u2")
    for part in iterate_chunks(shard.size):
        own = bits[part]
        # rounded: just under half a step is added, and one more where the upper half is odd
        upper = own >> UPPER
        upper &= ONE
        upper += HALF
        upper += own
        magnitude = own & MAGNITUDE
        if magnitude.max(initial=0) > INFINITE:
            upper = np.where(magnitude > INFINITE, own | QUIET, upper)
        upper >>= UPPER
        halves[part] = upper
    return halves.tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    if len(data) != packed_bytes(count):
        raise PayloadRefused(f"a shard of {count} elements has {packed_bytes(count)} bytes, not {len(data)}")
    bits = np.frombuffer(data, "<u2").astype(np.uint32)
    bits <<= UPPER
    return bits.view(np.float32)
