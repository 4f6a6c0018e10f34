"""Finds without data which whole numbers a document's inputs may have, from its operators' indices and labels."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gradmarket.market.model.document.arguments import Argument, Reference
from gradmarket.market.model.document.calls import TORCH_TYPES, OperatorCall
from gradmarket.market.model.document.checks import RULES
from gradmarket.market.model.document.formulas import by_formula
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.figures import Range

CARRIED: Final = frozenset(
    {
        "_unsafe_view.default",
        "broadcast_to.default",
        "chunk.default",
        "clone.default",
        "expand.default",
        "expand_as.default",
        "flatten.using_ints",
        "flip.default",
        "mT.default",
        "movedim.int",
        "movedim.intlist",
        "narrow.default",
        "numpy_T.default",
        "permute.default",
        "ravel.default",
        "repeat.default",
        "reshape.default",
        "reshape_as.default",
        "roll.default",
        "select.int",
        "slice.Tensor",
        "split.Tensor",
        "split_with_sizes.default",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "swapaxes.default",
        "t.default",
        "tile.default",
        "transpose.int",
        "unbind.int",
        "unflatten.int",
        "unsqueeze.default",
        "view.default",
        "view_as.default",
    }
)
"""Operators whose results contain only elements of their first argument."""
LABELS: Final = 4
"""Position of the ignored label among the arguments of a loss over classes."""


def ranges(program: Program, rows: int) -> dict[str, Range]:
    """Returns by data input the range that all its readers take; omits inputs that no operator reads directly.

    Runs one forward pass over `rows` rows of meta tensors. Raises DocumentRefused.
    """
    watch = _Watch(program)
    data: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for entry in program.document.inputs:
        kept, shape = (data, (rows, *entry.shape)) if entry.kind == "data" else (state, entry.shape)
        kept[entry.name] = torch.empty(shape, dtype=TORCH_TYPES[entry.dtype], device="meta")
    with torch.no_grad():
        program.run(state, data, bytes(32), watch, by_formula)
    return watch.found


class _Watch:
    """Follows data inputs from node to node, in the document's order."""

    def __init__(self, program: Program) -> None:
        self.found: dict[str, Range] = {}
        self._nodes = iter(program.document.nodes)
        entries = enumerate(program.document.inputs)
        self._origin = {number: entry.name for number, entry in entries if entry.kind == "data"}

    def __call__(self, operator: OperatorCall, arguments: Sequence[Any], results: Sequence[Any]) -> None:  # noqa: ARG002
        node = next(self._nodes)
        read = list(_pairs(node.arguments, arguments))
        if operator.key in CARRIED and read and (origin := self._origin.get(read[0][0])):
            self._origin.update(dict.fromkeys(node.results, origin))
        rule = RULES.get(operator.key)
        for indices, least, end in rule(arguments) if rule else ():
            places = [place for place, value in read if value is indices]
            if places:
                self._narrow(places[0], Range(least, end, None))
            else:  # a loss over classes, whose rule yields a masked copy of the labels
                self._narrow(read[1][0], Range(least, end, int(arguments[LABELS])))

    def _narrow(self, place: int, allowed: Range) -> None:
        origin = self._origin.get(place)
        if origin is not None:
            had = self.found.get(origin, allowed)
            ignored = allowed.ignored if allowed.ignored == had.ignored else None
            self.found[origin] = Range(max(had.least, allowed.least), min(had.end, allowed.end), ignored)


def _pairs(arguments: Sequence[Argument], given: Sequence[Any]) -> Iterator[tuple[int, Tensor]]:
    """Yields the number of each value that a node reads, with its tensor."""
    for argument, value in zip(arguments, given, strict=True):
        if isinstance(argument, Reference):
            yield argument.value, value
        elif isinstance(argument, tuple):
            yield from _pairs(argument, value)
