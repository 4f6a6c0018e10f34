"""Turns a shard into bytes. Each codec is one file, and a job refers to it by the file's name.

A codec keeps no state and takes randomness from the seed only, so every honest replica of a task packs the same bytes.
The length of a shard's bytes follows from its element count alone. So an upload of another length is refused before it
is read, and any shard can be read without those before it.
"""

from typing import Protocol, cast

from gradmarket.market.gradient.arrays import Vector
from graphdoc import plugins


class Codec(Protocol):
    """The interface of a file in this folder."""

    @property
    def GRADIENTS_ONLY(self) -> bool:  # noqa: N802
        """Whether loss and buffers, which are few and of other sizes, are packed as fp32 instead."""

    def pack(self, shard: Vector, seed: bytes) -> bytes:
        """Returns the bytes of a flat, contiguous float32 shard, exactly `packed_bytes(shard.size)` of them."""

    def unpack(self, data: memoryview, count: int, seed: bytes) -> Vector:
        """Returns the shard of `count` elements, maybe a read-only view of `data`.

        Raises PayloadRefused on malformed bytes.
        """

    def packed_bytes(self, count: int) -> int:
        """Returns the number of bytes of a shard of `count` elements."""


def load_codec(name: str) -> Codec:
    """Returns the codec of that name. Raises Refused where there is none."""
    return cast(Codec, plugins.load_plugin(__name__, name))
