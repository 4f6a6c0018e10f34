"""The 64 largest magnitudes of each block of 4,096 elements, at two bits each: 0.23 bits an element.

The format of SparseLoCo (Sarfi et al. 2025), which adds the omitted elements to a worker's next answer. Workers here
come and go and keep no state, so omitted elements are lost: at equal rounds this costs a job much, and `two_bit` is the
better choice wherever its ten times as many bytes can be borne.

Of equal magnitudes the one at the lower position is taken. The bytes of a shard are the class means of all blocks (as
in `_loops`, over the elements taken), then for each block 64 bits of signs and 64 of classes, then the positions, 12
bits each, two in three bytes, in rising order. A last block with fewer than 64 elements takes all of them; its further
positions are those that follow, whose bits are 0. Zeros that are taken, there or where fewer than 64 elements are not
0, stay zeros (`_loops`).
"""

from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import TAKEN, TOP_BLOCK, pack_top, unpack_top
from gradmarket.market.gradient.codecs._wire import build_means_table, check_means, split_arrays

GRADIENTS_ONLY: Final = True
PLACES_BYTES: Final = TAKEN * 12 // 8
BLOCK_BYTES: Final = 4 + 16 + PLACES_BYTES


def packed_bytes(count: int) -> int:
    return BLOCK_BYTES * -(-count // TOP_BLOCK)


def pack(shard: Vector, seed: bytes) -> bytes:  # noqa: ARG001
    blocks = -(-shard.size // TOP_BLOCK)
    means, signs, upper = np.empty((blocks, 2), "<u2"), np.empty(blocks, "<u8"), np.empty(blocks, "<u8")
    places = np.empty((blocks, TAKEN), np.uint16)
    pack_top(shard.view(np.uint32), means, signs, upper, places)
    pairs = places.reshape(-1, 2).astype(np.uint32)
    words = pairs[:, 0] | (pairs[:, 1] << np.uint32(12))
    positions = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    return b"".join(part.tobytes() for part in (means, signs, upper, positions))


def unpack(data: memoryview, count: int, seed: bytes) -> Vector:  # noqa: ARG001
    blocks = -(-count // TOP_BLOCK)
    arrays = (("<u2", 2 * blocks), ("<u8", blocks), ("<u8", blocks), ("u1", PLACES_BYTES * blocks))
    means, signs, upper, packed = split_arrays(data, packed_bytes(count), *arrays)
    check_means(means)
    first, middle, last = (packed.reshape(-1, 3)[:, byte].astype(np.int64) for byte in range(3))
    both = np.stack([first | (middle & 15) << 8, middle >> 4 | last << 4], axis=1)
    places = both.reshape(-1, TAKEN)
    if (np.diff(places) <= 0).any():
        raise PayloadRefused("the positions of a block do not rise")
    if blocks:
        elements = count - (blocks - 1) * TOP_BLOCK
        taken = min(TAKEN, elements)
        if places[-1, taken - 1] >= elements or (int(signs[-1]) | int(upper[-1])) >> taken:
            raise PayloadRefused(f"the last block takes more than its {elements} elements")
    shard = np.zeros(count, np.float32)
    unpack_top(build_means_table(means), signs, upper, places, shard)
    return shard
