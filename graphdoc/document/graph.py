"""A checked graph document: inputs, nodes, outputs. No torch; nothing in it is executed or imported."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

from graphdoc.document.arguments import Argument, Reference

Kind = Literal["param", "buffer", "const", "data"]
Precision = Literal["fp32", "tf32", "bf16"]
"""The precision of matrix products and convolutions; parameters and answers are float32. tf32: their operands are
rounded to 10 bits of mantissa (document.product_precisions). bf16: they are in bfloat16, as in torch.autocast."""
Arithmetic = Literal["native", "reproducible", "tf32"]
"""native: torch's own kernels, whose bits depend on the machine. reproducible: those of graphdoc.reproducible. tf32:
torch's own, with products of the precision of that name."""
WEIGHT: Final = "weight:"
"""The name of the rows' weight beside an answer's tensors: no name of a document has a colon."""


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
class Scan:
    """Nodes that are computed `length` times, one step after another.

    The body has its own values: the carries, one value of each list of `given`, `fixed`, `counters`, then its nodes'
    results. The first step's carries are `start`, those of each other step the values `carried` of the step before.
    Results are the values `last` of the last step, then for each of `every` its value in all steps.
    """

    op: ClassVar[str] = "scan"
    length: int
    start: tuple[Reference, ...]
    given: tuple[tuple[Reference, ...], ...]
    """A value for each step."""
    fixed: tuple[Reference, ...]
    """Values that are the same in every step."""
    counters: tuple[tuple[int, int], ...]
    """(the number in the first step, the increment of each step)."""
    body: tuple[Node, ...]
    carried: tuple[int, ...]
    last: tuple[int, ...]
    every: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.start, self.given, self.fixed)

    @property
    def inputs(self) -> int:
        """The number of values that the body has before its first node."""
        return len(self.start) + len(self.given) + len(self.fixed) + len(self.counters)


@dataclass(frozen=True)
class Document:
    """A checked graph document.

    Values 0 to len(inputs) - 1 are the inputs; nodes are in the order of computation.
    """

    digest: str
    sizes: dict[str, int]
    inputs: tuple[Input, ...]
    nodes: tuple[Node | Scan, ...]
    loss: int
    metrics: dict[str, int]
    updates: dict[str, int]
    weight: int | None = None
    """The sum of the rows' weights, by which the loss is their mean; without it every row weighs 1."""
    arithmetic: Arithmetic = "native"

    @cached_property
    def written(self) -> tuple[Node, ...]:
        """Every node, those of bodies once."""
        return tuple(one for node in self.nodes for one in (node.body if isinstance(node, Scan) else (node,)))

    @cached_property
    def calls(self) -> int:
        """The number of operators that one run calls."""
        return sum(node.length * len(node.body) if isinstance(node, Scan) else 1 for node in self.nodes)

    def of(self, *kinds: Kind) -> Iterator[Input]:
        """Yields the inputs of these kinds, in document order."""
        return (entry for entry in self.inputs if entry.kind in kinds)

    @cached_property
    def trainable(self) -> tuple[Input, ...]:
        """The parameters that get a gradient, in document order."""
        return tuple(entry for entry in self.inputs if entry.grad)

    @property
    def counters(self) -> tuple[str, ...]:
        """Integer buffers (BatchNorm's num_batches_tracked): not computed; their owner counts updates in them."""
        return tuple(entry.name for entry in self.of("buffer") if entry.dtype != "float32")

    @cached_property
    def precision(self) -> Precision:
        """`tf32` where that is the arithmetic, `bf16` where any value is converted to a 16-bit float, else `fp32`."""
        if self.arithmetic == "tf32":
            return "tf32"
        written = (argument for node in self.written for argument in node.arguments)
        return "bf16" if any(argument in ("bfloat16", "float16") for argument in written) else "fp32"

    @cached_property
    def draws(self) -> bool:
        """Whether any node draws at random."""
        return any(node.op.startswith(("dropout.", "chance.", "attention.dropout")) for node in self.written)

    @cached_property
    def state(self) -> Expected:
        """The shape and element type of every parameter, buffer and constant."""
        return {entry.name: (entry.shape, entry.dtype) for entry in self.of("param", "buffer", "const")}

    def batch(self, rows: int, sizes: Mapping[str, int] | None = None) -> Expected:
        """Returns the shape and element type of each data input of a batch of `rows` rows.

        Named dimensions have these sizes, or without them their maxima.
        """
        taken = self.sizes | dict(sizes or {})
        expected: Expected = {}
        for entry in self.of("data"):
            shape = list(entry.shape)
            for place, name in entry.named:
                shape[place] = taken[name]
            expected[entry.name] = ((rows, *shape), entry.dtype)
        return expected


def answer_of(document: Document) -> Expected:
    """Returns shape and element type of the answers of a run with gradients, all float32.

    These are the loss, a gradient for each trainable parameter in document order, the float buffers sorted by name, and
    where the document has a weight that of the rows, under WEIGHT.
    """
    gradients = {entry.name: entry.shape for entry in document.trainable}
    buffers = {name: document.state[name][0] for name in sorted(document.updates)}
    weight: dict[str, tuple[int, ...]] = {} if document.weight is None else {WEIGHT: ()}
    return {name: (shape, "float32") for name, shape in ({"loss": ()} | gradients | buffers | weight).items()}
