"""float32, little-endian: 4 bytes an element, lossless."""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector

GRADIENTS_ONLY: Final = False


def packed_bytes(count: int) -> int:
    return 4 * count


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    return shard.astype("<f4", copy=False).tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    if len(data) != packed_bytes(count):
        raise PayloadRefused(f"a shard of {count} elements has {packed_bytes(count)} bytes, not {len(data)}")
    return np.frombuffer(data, "<f4").astype(np.float32, copy=False)
