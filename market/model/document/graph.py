"""A checked graph document: inputs, nodes, outputs. No torch; nothing in it is executed or imported."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gradmarket.market.job_parts import Precision
from gradmarket.market.model.document.arguments import Argument
from gradmarket.market.terms import Digest

Kind = Literal["param", "buffer", "const", "data"]


Expected = dict[str, tuple[tuple[int, ...], str]]
"""The shape and element type of each tensor by its name."""


@dataclass(frozen=True)
class Input:
    """A named tensor that the document reads.

    For data, `shape` is that of one row, with named sizes at their maximum.
    """

    kind: Kind
    name: str
    shape: tuple[int, ...]
    dtype: str
    grad: bool
    named: tuple[tuple[int, str], ...] = ()
    """The positions in `shape` that have a name of `sizes`, with that name."""

    @cached_property
    def elements(self) -> int:
        """The number of elements of the tensor; for data, of one row."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Node:
    """One operator applied to earlier values; `results` are the numbers of its result values."""

    op: str
    arguments: tuple[Argument, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Document:
    """A checked graph document.

    Values 0 to len(inputs) - 1 are the inputs; nodes are in the order of computation.
    """

    digest: Digest
    sizes: dict[str, int]
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    loss: int
    metrics: dict[str, int]
    updates: dict[str, int]

    def of(self, *kinds: Kind) -> Iterator[Input]:
        """Yields the inputs of these kinds, in document order."""
        return (entry for entry in self.inputs if entry.kind in kinds)

    @cached_property
    def trainable(self) -> tuple[Input, ...]:
        """The parameters that get a gradient, in document order."""
        return tuple(entry for entry in self.inputs if entry.grad)

    @property
    def counters(self) -> tuple[str, ...]:
        """Integer buffers (BatchNorm's num_batches_tracked): not computed; the requester counts rounds in them."""
        return tuple(entry.name for entry in self.of("buffer") if entry.dtype != "float32")

    @cached_property
    def precision(self) -> Precision:
        """`bf16` where any value is converted to a 16-bit float, else `fp32`."""
        written = (argument for node in self.nodes for argument in node.arguments)
        return "bf16" if any(argument in ("bfloat16", "float16") for argument in written) else "fp32"

    @cached_property
    def state(self) -> Expected:
        """The shape and element type of every parameter, buffer and constant."""
        return {entry.name: (entry.shape, entry.dtype) for entry in self.of("param", "buffer", "const")}

    def batch(self, rows: int, sizes: Mapping[str, int] | None = None) -> Expected:
        """Returns the shape and element type of each data input of a batch of `rows` rows.

        Named dimensions have these sizes, or without them their maxima.
        """
        taken = self.sizes | dict(sizes or {})
        return {entry.name: ((rows, *_sized(entry, taken)), entry.dtype) for entry in self.of("data")}


def _sized(entry: Input, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = list(entry.shape)
    for place, name in entry.named:
        shape[place] = sizes[name]
    return tuple(shape)
