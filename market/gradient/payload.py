"""The payload of an answer: named float32 tensors in one canonical order, encoded as bytes.

The order is the loss, then the gradient of every trainable parameter in document order, then the new value of every
float buffer. As one flat vector in C order they are cut into shards of SHARD_ELEMENTS. The codec packs each shard, and
the packed shards are concatenated without separators. Where the codec is for gradients only, a shard is cut where they
begin and end, and loss and buffers are packed as fp32. The blake3 of these bytes is the payload's root, which is voted
on, signed and paid for, and the digest of the blob that the payload is stored as.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Final, Literal

import numpy as np
from blake3 import blake3

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Bytes, Tensors, Vector
from gradmarket.market.gradient.codecs import Codec, fp32

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
    def starts(self) -> tuple[int, ...]:
        """Where each entry begins in the flat vector."""
        return tuple(accumulate((entry.size for entry in self.entries[:-1]), initial=0))

    @cached_property
    def gradient(self) -> slice:
        """Where the gradients lie in the flat vector: after the loss, before the buffers."""
        return slice(1, 1 + sum(entry.size for entry in self.of("gradient")))

    @cached_property
    def shards(self) -> tuple[slice, ...]:
        """Where each shard lies in the flat vector."""
        starts = range(0, self.size, SHARD_ELEMENTS)
        return tuple(slice(start, min(start + SHARD_ELEMENTS, self.size)) for start in starts)

    @cached_property
    def _places(self) -> dict[Codec, tuple[int, ...]]:
        return {}

    def places(self, codec: Codec) -> tuple[int, ...]:
        """Returns the byte at which each packed shard begins, and the payload's length as the last."""
        if codec not in self._places:
            lengths = (_shard_bytes(self, index, codec) for index in range(len(self.shards)))
            self._places[codec] = tuple(accumulate(lengths, initial=0))
        return self._places[codec]

    def of(self, kind: Kind) -> Iterator[LayoutEntry]:
        """Yields the entries of one kind, in order."""
        return (entry for entry in self.entries if entry.kind == kind)


@dataclass(frozen=True)
class Section:
    """A part of a shard whose elements share a bound; `gradient` tells whether it counts in the norm."""

    part: slice
    gradient: bool


def sections(layout: Layout, index: int) -> tuple[Section, ...]:
    """Returns shard `index` cut where gradients begin and end, with positions counted from the shard's start."""
    shard, gradient = layout.shards[index], layout.gradient
    inside = {edge for edge in (gradient.start, gradient.stop) if shard.start < edge < shard.stop}
    return tuple(
        Section(slice(start - shard.start, stop - shard.start), gradient.start <= start < gradient.stop)
        for start, stop in pairwise(sorted({shard.start, shard.stop} | inside))
    )


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
    return layout.places(codec)[-1]


def _packings(layout: Layout, index: int, codec: Codec) -> list[tuple[slice, Codec]]:
    """Returns the parts of a shard that are packed each by itself, and by what."""
    if not codec.GRADIENTS_ONLY:
        return [(slice(0, _elements(layout, index)), codec)]
    return [(each.part, codec if each.gradient else fp32) for each in sections(layout, index)]


def _shard_bytes(layout: Layout, index: int, codec: Codec) -> int:
    return sum(used.packed_bytes(part.stop - part.start) for part, used in _packings(layout, index, codec))


def encode(layout: Layout, tensors: Tensors, codec: Codec, seed: bytes) -> bytes:
    """Returns the canonical bytes of an answer; `seed` is the task's. Raises PayloadRefused as `check` does."""
    check(layout, tensors)
    packed = BytesIO()
    for index, shard in enumerate(_cut(layout, tensors)):
        packed.write(pack_shard(layout, shard, index, codec, seed))
    return packed.getvalue()


def pack_shard(layout: Layout, shard: Vector, index: int, codec: Codec, seed: bytes) -> bytes:
    """Returns the bytes of shard `index`, flat float32."""
    packings, own = _packings(layout, index, codec), _shard_seed(seed, index)
    return b"".join(used.pack(shard[part], own) for part, used in packings)


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
    start, stop = layout.places(codec)[index : index + 2]
    return slice(start, stop)


def unpack_shard(layout: Layout, packed: memoryview, index: int, codec: Codec, seed: bytes) -> Vector:
    """Returns shard `index` from its own bytes alone. Raises PayloadRefused where the codec refuses the shard."""
    packings = _packings(layout, index, codec)
    lengths = [used.packed_bytes(part.stop - part.start) for part, used in packings]
    places = pairwise(accumulate(lengths, initial=0))
    if len(packed) != sum(lengths):
        raise PayloadRefused(f"shard {index} has {sum(lengths)} bytes, not {len(packed)}")
    parts = [
        used.unpack(packed[start:stop], part.stop - part.start, _shard_seed(seed, index))
        for (part, used), (start, stop) in zip(packings, places, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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
    shards = (shard for _, shard in decode(layout, data, codec, seed))
    for entry, values in whole_tensors(layout, shards):
        yield entry.name, values.reshape(entry.shape)


def whole_tensors(layout: Layout, shards: Iterator[Vector]) -> Iterator[tuple[LayoutEntry, Vector]]:
    """Yields every tensor, flat and in memory of its own, from all shards in order."""
    rest = np.empty(0, np.float32)
    for entry in layout.entries:
        tensor, done = np.empty(entry.size, np.float32), 0
        while done < entry.size:
            rest = rest if rest.size else next(shards)
            piece, rest = np.split(rest, [min(rest.size, entry.size - done)])
            tensor[done : done + piece.size] = piece
            done += piece.size
        yield entry, tensor


def _shard_seed(seed: bytes, index: int) -> bytes:
    return blake3(seed + index.to_bytes(8, "little"), derive_key_context="gradmarket.payload.shard").digest()
