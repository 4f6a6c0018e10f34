"""How a shard becomes bytes: one file per codec, its name is the one in the job.

A codec keeps no state and draws nothing but from the seed, so every honest replica of a task packs the same bytes. A
shard's bytes have a length known from its count alone, so an upload of another length is refused before it is read,
and any shard can be read without those before it.
"""

from typing import Protocol, cast

from gradmarket.market import plugins
from gradmarket.market.gradient.arrays import Vector


class Codec(Protocol):
    """What a file in this folder offers."""

    def pack(self, shard: Vector, seed: bytes) -> bytes:
        """The bytes of a flat, contiguous float32 shard, exactly `packed_bytes(shard.size)` of them."""

    def unpack(self, data: memoryview, count: int, seed: bytes) -> Vector:
        """The shard of `count` elements, maybe a read-only view of `data`. Raises PayloadRefused on malformed bytes."""

    def packed_bytes(self, count: int) -> int:
        """The bytes of a shard of `count` elements."""


def codec(name: str) -> Codec:
    """The codec of that name. Raises Refused where there is none."""
    return cast(Codec, plugins.load(__name__, name))
