"""The place of every element of a flat payload: its tensors, its sections and its shards."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, Literal

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.codecs import Codec, fp32
from graphdoc.document.graph import Document

Kind = Literal["loss", "gradient", "buffer"]


KIND_ORDER: Final = ("loss", "gradient", "buffer")


SHARD_ELEMENTS: Final = 2**20
"""Elements of a shard; the last one of a payload may be shorter."""
LEAF_BYTES: Final = 32
"""Bytes of the digest of one state."""
WEIGHT_BYTES: Final = 4
"""Bytes of the weight of an answer's rows, a little-endian float32."""


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

    After them come the digests of `leaves` states within the task (features.windows), and where `weighed` the weight
    of the task's rows, by which a merge weighs the answer. Raises PayloadRefused where entries are out of that order,
    share a name or have a negative dimension.
    """

    entries: tuple[LayoutEntry, ...]
    leaves: int = 0
    weighed: bool = False

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
        """The start of each entry in the flat vector."""
        return tuple(accumulate((entry.size for entry in self.entries[:-1]), initial=0))

    @cached_property
    def gradient(self) -> slice:
        """The place of the gradients in the flat vector: after the loss, before the buffers."""
        return slice(1, 1 + sum(entry.size for entry in self.of("gradient")))

    @cached_property
    def shards(self) -> tuple[slice, ...]:
        """The place of each shard in the flat vector."""
        starts = range(0, self.size, SHARD_ELEMENTS)
        return tuple(slice(start, min(start + SHARD_ELEMENTS, self.size)) for start in starts)

    @cached_property
    def _places(self) -> dict[Codec, tuple[int, ...]]:
        return {}

    def places(self, codec: Codec) -> tuple[int, ...]:
        """Returns the byte at which each packed shard begins, and last the byte at which they end."""
        if codec not in self._places:
            lengths = (shard_bytes(self, index, codec) for index in range(len(self.shards)))
            self._places[codec] = tuple(accumulate(lengths, initial=0))
        return self._places[codec]

    def of(self, kind: Kind) -> Iterator[LayoutEntry]:
        """Yields the entries of one kind, in order."""
        return (entry for entry in self.entries if entry.kind == kind)


@dataclass(frozen=True)
class Section:
    """A part of a shard whose elements share a bound; `gradient`: whether it counts in the norm."""

    part: slice
    gradient: bool


def list_sections(layout: Layout, index: int) -> tuple[Section, ...]:
    """Returns shard `index` cut where gradients begin and end, with positions counted from the shard's start."""
    shard, gradient = layout.shards[index], layout.gradient
    inside = {edge for edge in (gradient.start, gradient.stop) if shard.start < edge < shard.stop}
    return tuple(
        Section(slice(start - shard.start, stop - shard.start), gradient.start <= start < gradient.stop)
        for start, stop in pairwise(sorted({shard.start, shard.stop} | inside))
    )


def payload_bytes(layout: Layout, codec: Codec) -> int:
    """Returns the exact length of every payload of this layout: an upload of another length is refused unread."""
    return layout.places(codec)[-1] + LEAF_BYTES * layout.leaves + WEIGHT_BYTES * layout.weighed


def list_packings(layout: Layout, index: int, codec: Codec) -> list[tuple[slice, Codec]]:
    """Returns the parts of a shard that are packed separately, each with its codec."""
    if not codec.GRADIENTS_ONLY:
        part = layout.shards[index]
        return [(slice(0, len(range(part.start, part.stop))), codec)]
    return [(each.part, codec if each.gradient else fp32) for each in list_sections(layout, index)]


def shard_bytes(layout: Layout, index: int, codec: Codec) -> int:
    return sum(used.packed_bytes(part.stop - part.start) for part, used in list_packings(layout, index, codec))


def build_layout(document: Document) -> Layout:
    """Returns the layout of a step's answer.

    It has the loss, a gradient for each trainable parameter in document order, and the float buffers sorted by name.
    It is weighed where the document's rows have weights.
    """
    gradients = [LayoutEntry(entry.name, entry.shape, "gradient") for entry in document.trainable]
    buffers = [LayoutEntry(name, document.state[name][0], "buffer") for name in sorted(document.updates)]
    return Layout((LayoutEntry("loss", (), "loss"), *gradients, *buffers), weighed=document.weight is not None)
