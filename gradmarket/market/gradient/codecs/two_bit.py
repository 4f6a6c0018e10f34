"""Sign and one bit an element, two class means for each block of 64 elements: 2.5 bits an element.

The bytes of a shard are the means of all blocks (lower and upper, bfloat16), then 64 bits of signs for each block, then
64 bits of classes. All is little-endian; the bits of a last, shorter block beyond its elements are 0. `_loops` forms
the classes. An exact 0 stays 0: a block with one has 0 for its lower mean. The code keeps no state: a rounding loss of
one round is not compensated in the next.
"""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import BLOCK, pack_two_bit, unpack_two_bit
from gradmarket.market.gradient.codecs._wire import build_means_table, check_means, split_arrays

GRADIENTS_ONLY: Final = True
BLOCK_BYTES: Final = 20


def packed_bytes(count: int) -> int:
    return BLOCK_BYTES * -(-count // BLOCK)


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    blocks = -(-shard.size // BLOCK)
    means, signs, upper = np.empty((blocks, 2), "<u2"), np.empty(blocks, "<u8"), np.empty(blocks, "<u8")
    pack_two_bit(shard.view(np.uint32), means, signs, upper)
    return means.tobytes() + signs.tobytes() + upper.tobytes()


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    blocks = -(-count // BLOCK)
    means, signs, upper = split_arrays(data, packed_bytes(count), ("<u2", 2 * blocks), ("<u8", blocks), ("<u8", blocks))
    check_means(means)
    used = count % BLOCK
    if used and (int(signs[-1]) | int(upper[-1])) >> used:
        raise PayloadRefused(f"bits beyond the {count} elements of a shard are not 0")
    shard = np.empty(count, np.float32)
    unpack_two_bit(build_means_table(means), signs, upper, shard)
    return shard
