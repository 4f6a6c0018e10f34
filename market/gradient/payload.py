"""What one replica answers: named float32 tensors in one canonical order.

The order is the loss, then the gradient of every trainable parameter in document order, then the new value of every float
buffer. Read as one flat vector in C order they are cut into shards of SHARD_ELEMENTS, and each shard is packed by the codec.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from gradmarket.market.errors import PayloadRefused

KIND_ORDER: Final = ("loss", "gradient", "buffer")
Kind = Literal["loss", "gradient", "buffer"]

SHARD_ELEMENTS: Final = 2**20
"""Elements of a shard; the last one of a payload may be shorter."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a payload: a `loss` or `gradient` or new `buffer` value, float32 of this shape."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @cached_property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors of a payload in canonical order: one scalar loss, the gradients, the float buffers.

    Raises PayloadRefused where entries are out of that order, share a name or have a negative dimension.
    """

    entries: tuple[Entry, ...]

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
        """Elements of the flat vector."""
        return sum(entry.size for entry in self.entries)

    def of(self, kind: Kind) -> Iterator[Entry]:
        """The entries of one kind, in order."""
        return (entry for entry in self.entries if entry.kind == kind)
