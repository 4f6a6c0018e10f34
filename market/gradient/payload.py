"""The payload of an answer: named float32 tensors in one canonical order, encoded as bytes.

The order is the loss, then the gradient of every trainable parameter in document order, then the new value of every
float buffer. As one flat vector in C order they are cut into shards of SHARD_ELEMENTS. The codec packs each shard, and
the packed shards are concatenated without separators. The Merkle root of these bytes identifies the payload.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Final, Literal

import numpy as np
from blake3 import blake3

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Bytes, Tensors, Vector
from gradmarket.market.gradient.codecs import Codec

Kind = Literal["loss", "gradient", "buffer"]
KIND_ORDER: Final = ("loss", "gradient", "buffer")

SHARD_ELEMENTS: Final = 2**20
"""Elements of a shard; the last one of a payload may be shorter."""


@dataclass(frozen=True)
class LayoutEntry:
    """One tensor of a payload: the `loss`, a `gradient` or a `buffer`'s new value, float32 of this shape."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @cached_property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors of a payload in canonical order: one scalar loss, the gradients, the float buffers.

    Raises PayloadRefused where entries are out of that order, share a name or have a negative dimension.
    """

    entries: tuple[LayoutEntry, ...]

    def __post_init__(self) -> None:
        kinds = [entry.kind for entry in self.entries]
        if kinds.count("loss") != 1 or kinds != sorted(kinds, key=KIND_ORDER.index):
            raise PayloadRefused("a layout is one loss, then gradients, then buffers")
        if self.entries[0].shape != ():
            raise PayloadRefused("the loss is a scalar")
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise PayloadRefused("two tensors share a name")
        if any(dimension < 0 for entry in self.entries for dimension in entry.shape):
            raise PayloadRefused("a dimension is negative")

    @cached_property
    def size(self) -> int:
        """The number of elements of the flat vector."""
        return sum(entry.size for entry in self.entries)

    @cached_property
    def gradient(self) -> slice:
        """Where the gradients lie in the flat vector: after the loss, before the buffers."""
        return slice(1, 1 + sum(entry.size for entry in self.of("gradient")))

    @cached_property
    def shards(self) -> tuple[slice, ...]:
        """Where each shard lies in the flat vector."""
        starts = range(0, self.size, SHARD_ELEMENTS)
        return tuple(slice(start, min(start + SHARD_ELEMENTS, self.size)) for start in starts)

    def of(self, kind: Kind) -> Iterator[LayoutEntry]:
        """Yields the entries of one kind, in order."""
        return (entry for entry in self.entries if entry.kind == kind)


def check(layout: Layout, tensors: Tensors) -> None:
    """Raises PayloadRefused where names, a dtype or a shape differ from the layout's."""
    names = {entry.name for entry in layout.entries}
    if names != tensors.keys():
        raise PayloadRefused(f"names differ from the layout's: {sorted(names ^ tensors.keys())[:5]}")
    for entry in layout.entries:
        tensor = tensors[entry.name]
        if tensor.dtype != np.float32 or tensor.shape != entry.shape:
            raise PayloadRefused(f"{entry.name} is {tensor.dtype}{tensor.shape}, not float32{entry.shape}")


def flatten(layout: Layout, tensors: Tensors) -> Vector:
    """Returns the flat vector, a copy. Raises PayloadRefused as `check` does."""
    check(layout, tensors)
    return np.concatenate([tensors[entry.name].reshape(-1) for entry in layout.entries])


def unflatten(layout: Layout, vector: Vector) -> dict[str, Vector]:
    """Returns the named tensors as views of a flat float32 vector. Raises PayloadRefused on another size."""
    if vector.shape != (layout.size,):
        raise PayloadRefused(f"the vector has shape {vector.shape}, not ({layout.size},)")
    tensors, start = {}, 0
    for entry in layout.entries:
        tensors[entry.name] = vector[start : start + entry.size].reshape(entry.shape)
        start += entry.size
    return tensors


def payload_bytes(layout: Layout, codec: Codec) -> int:
    """Returns the exact length of every payload of this layout: an upload of another length is refused unread."""
    return sum(codec.packed_bytes(part.stop - part.start) for part in layout.shards)


def encode(layout: Layout, tensors: Tensors, codec: Codec, seed: bytes) -> bytes:
    """Returns the canonical bytes of an answer; `seed` is the task's. Raises PayloadRefused as `check` does."""
    check(layout, tensors)
    packed = BytesIO()
    for index, shard in enumerate(_cut(layout, tensors)):
        packed.write(codec.pack(shard, _shard_seed(seed, index)))
    return packed.getvalue()


def _cut(layout: Layout, tensors: Tensors) -> Iterator[Vector]:
    """Yields the shards in one reused buffer: a new large vector would cost more than packing it."""
    shard, filled = np.empty(min(SHARD_ELEMENTS, layout.size), np.float32), 0
    for entry in layout.entries:
        rest = tensors[entry.name].reshape(-1)
        while rest.size:
            piece, rest = np.split(rest, [shard.size - filled])
            shard[filled : filled + piece.size] = piece
            filled = (filled + piece.size) % shard.size
            if filled == 0:
                yield shard
    if filled:
        yield shard[:filled]


def read_shard(layout: Layout, data: Bytes, index: int, codec: Codec, seed: bytes) -> Vector:
    """Returns shard `index` of a payload as flat float32, maybe a read-only view of `data`.

    It reads no other shard. Raises PayloadRefused where the payload has not the layout's length or the codec refuses
    the shard.
    """
    view = memoryview(data).cast("B")
    if len(view) != payload_bytes(layout, codec):
        raise PayloadRefused(f"it has {len(view)} bytes, not {payload_bytes(layout, codec)}")
    return unpack_shard(layout, view[shard_place(layout, index, codec)], index, codec, seed)


def shard_place(layout: Layout, index: int, codec: Codec) -> slice:
    """Returns where the bytes of shard `index` lie in a payload."""
    start = index * codec.packed_bytes(SHARD_ELEMENTS)
    return slice(start, start + codec.packed_bytes(_elements(layout, index)))


def unpack_shard(layout: Layout, packed: memoryview, index: int, codec: Codec, seed: bytes) -> Vector:
    """Returns shard `index` from its own bytes alone. Raises PayloadRefused where the codec refuses the shard."""
    return codec.unpack(packed, _elements(layout, index), _shard_seed(seed, index))


def _elements(layout: Layout, index: int) -> int:
    part = layout.shards[index]
    return len(range(part.start, part.stop))


def decode(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> Iterator[tuple[int, Vector]]:
    """Yields every shard with its index, so memory is one shard's. Raises PayloadRefused as `read_shard` does."""
    return ((index, read_shard(layout, data, index, codec, seed)) for index in range(len(layout.shards)))


def decode_tensors(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> dict[str, Vector]:
    """Returns the named tensors of a payload. Raises PayloadRefused as `read_shard` does."""
    shards = [shard for _, shard in decode(layout, data, codec, seed)]
    return unflatten(layout, np.concatenate(shards))


def read_tensors(layout: Layout, data: Bytes, codec: Codec, seed: bytes) -> Iterator[tuple[str, Vector]]:
    """Yields each tensor with its name, in the layout's order, so memory is a shard's and a tensor's.

    Raises PayloadRefused as `read_shard` does.
    """
    shards, rest = decode(layout, data, codec, seed), np.empty(0, np.float32)
    for entry in layout.entries:
        tensor, filled = np.empty(entry.size, np.float32), 0
        while filled < entry.size:
            if not rest.size:
                _, rest = next(shards)
            piece, rest = np.split(rest, [entry.size - filled])
            tensor[filled : filled + piece.size] = piece
            filled += piece.size
        yield entry.name, tensor.reshape(entry.shape)


def _shard_seed(seed: bytes, index: int) -> bytes:
    return blake3(seed + index.to_bytes(8, "little"), derive_key_context="gradmarket.payload.shard").digest()
