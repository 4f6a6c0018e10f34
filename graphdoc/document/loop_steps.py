"""The steps of a loop that was traced written out: the number of equal ones, and the reads of each of their nodes.

They work on the document's JSON, without torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdoc.document.arguments import LIST_LIMIT
from graphdoc.document.node_schema import CALLS_LIMIT

Encoded = dict[str, Any]
Form = Callable[[int], Any]
"""Returns a value's shape and element type by its number; None where they are unknown."""


@dataclass(frozen=True)
class Leaf:
    """A part of an argument that may differ from step to step: a value, or a number that a counter may replace."""

    number: int
    is_value: bool


@dataclass
class WrittenOut:
    """The nodes of a document, with the features by which they differ."""

    nodes: Sequence[Encoded]
    form: Form
    kinds: list[int] = field(default_factory=list)
    """Nodes that differ in leaves alone are of one kind."""
    leaves: list[list[Leaf]] = field(default_factory=list)
    maker: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By value: the node that gives it, and its place among the node's results."""
    numbers: set[int] = field(default_factory=set)
    """Values that are integers."""
    last_read: dict[int, int] = field(default_factory=dict)


class LoopSteps:
    """The longest run of equal steps from one node on, of `stride` nodes each, and the part of each leaf in them.

    `parts` has for each leaf, by (node of a step, leaf of the node), one of ("same", a number), ("counter", (first,
    increment of a step)), ("own", a result of the step), ("carry", (the first step's value, a result of the step
    before)), ("given", a value for each step) and ("fixed", a value). A result is (node of a step, result of the node).
    """

    def __init__(self, trace: WrittenOut, begin: int, stride: int, most: int) -> None:
        self.begin, self.stride, self.length = begin, stride, most
        self._trace = trace
        leaves = [(node, leaf) for node in range(stride) for leaf in range(len(trace.leaves[begin + node]))]
        for node in range(stride):
            for place in range(len(trace.nodes[begin + node]["out"])):
                self.length = count_equal_values([trace.form(value) for value in self.values((node, place))])
        for node, leaf in leaves:
            self.length = self._count_alike_steps(self._list_leaf_column(node, leaf))
        self.parts = (
            {place: self._classify_column(self._list_leaf_column(*place)) for place in leaves} if self.length else {}
        )

    @property
    def end(self) -> int:
        return self.begin + self.stride * self.length

    def distinct(self, part: str) -> list[Any]:
        """Returns the distinct values of the leaves of this part."""
        return list(dict.fromkeys(noun for found, noun in self.parts.values() if found == part))

    def values(self, result: tuple[int, int]) -> list[int]:
        """Returns the value of a result in each step."""
        node, place = result
        return [self._trace.nodes[self.begin + step * self.stride + node]["out"][place] for step in range(self.length)]

    def read_later(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Returns the results that are read later: those of the last step alone, and others."""
        last: list[tuple[int, int]] = []
        every: list[tuple[int, int]] = []
        for node in range(self.stride):
            for place in range(len(self._trace.nodes[self.begin + node]["out"])):
                later = [self._trace.last_read.get(value, -1) >= self.end for value in self.values((node, place))]
                if any(later):
                    (every if any(later[:-1]) else last).append((node, place))
        return last, every

    def is_sayable(self) -> bool:
        """Returns whether a scan can express the loop: it gives tensors, and its lists are not too long."""
        last, every = self.read_later()
        tensors = not any(value in self._trace.numbers for one in (*last, *every) for value in self.values(one))
        lists = [last, every, *(self.distinct(part) for part in ("carry", "given", "fixed", "counter"))]
        short = self.stride * self.length <= CALLS_LIMIT and all(len(one) <= LIST_LIMIT for one in lists)
        return tensors and short and bool(last or every)

    def _list_leaf_column(self, node: int, leaf: int) -> list[Leaf]:
        return [self._trace.leaves[self.begin + step * self.stride + node][leaf] for step in range(self.length)]

    def _count_alike_steps(self, column: Sequence[Leaf]) -> int:
        """Returns the number of steps in which the leaf has one part."""
        numbers = [leaf.number for leaf in column]
        if len(column) < 2:
            return 0
        if not column[0].is_value:
            return count_equal_values(
                [number - step * (numbers[1] - numbers[0]) for step, number in enumerate(numbers)]
            )
        places = [self._locate_value(step, number) for step, number in enumerate(numbers)]
        if places[1] is not None and places[1][0] >= 0:
            return count_equal_values(places)
        if count_equal_values(numbers) == len(numbers) and places[0] is None:
            return len(numbers)
        tensors = count_equal_values(
            [None if number in self._trace.numbers else self._trace.form(number) for number in numbers]
        )
        return min(tensors, 1 + count_equal_values(places[1:], known=False)) if places[0] is None else 0

    def _locate_value(self, step: int, value: int) -> tuple[int, int] | None:
        """Returns the node that gives a value, counted from the step's first, and its place there; None before all."""
        node, place = self._trace.maker.get(value, (-1, 0))
        return (node - self.begin - step * self.stride, place) if node >= self.begin else None

    def _classify_column(self, column: Sequence[Leaf]) -> tuple[str, Any]:
        numbers = [leaf.number for leaf in column]
        if not column[0].is_value:
            by = numbers[1] - numbers[0]
            return ("counter", (numbers[0], by)) if by else ("same", numbers[0])
        place = self._locate_value(1, numbers[1])
        if place is None:
            return ("fixed", numbers[0]) if len(set(numbers)) == 1 else ("given", tuple(numbers))
        node, result = place
        return ("own", place) if node >= 0 else ("carry", (numbers[0], (node + self.stride, result)))


def count_equal_values(values: Sequence[Any], known: bool = True) -> int:
    """Returns how many values from the first on are equal; 0 where the first is None, unless `known` is false."""
    if not values or (known and values[0] is None):
        return 0
    return next((place for place, value in enumerate(values) if value != values[0]), len(values))
