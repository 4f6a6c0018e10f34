"""Finds without data which whole numbers a document's inputs may have, from its operators' indices and labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gradmarket.market.model.document.calls import TORCH_TYPES, OperatorCall
from gradmarket.market.model.document.checks import LABELS, RULES
from gradmarket.market.model.document.interpret import SHAPED, Program
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


def ranges(program: Program, rows: int) -> dict[str, Range]:
    """Returns by data input the range that all its readers take; omits inputs that no operator reads directly.

    Runs one forward pass over `rows` rows of meta tensors. Raises DocumentRefused.
    """
    data: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for entry in program.document.inputs:
        kept, shape = (data, (rows, *entry.shape)) if entry.kind == "data" else (state, entry.shape)
        kept[entry.name] = torch.empty(shape, dtype=TORCH_TYPES[entry.dtype], device="meta")
    watch = _Watch(data)
    with torch.no_grad():
        program.run(state, data, bytes(32), watch, SHAPED)
    return watch.found


class _Watch:
    """Follows data inputs from node to node."""

    def __init__(self, data: Mapping[str, Tensor]) -> None:
        self.found: dict[str, Range] = {}
        self._origin = {id(tensor): (name, tensor) for name, tensor in data.items()}
        """By the identity of a tensor, which is kept so that it stays its own."""

    def __call__(
        self,
        operator: OperatorCall,
        arguments: Sequence[Any],
        results: Sequence[Any],
        times: int,  # noqa: ARG002
    ) -> None:
        read = next(_tensors(arguments), None)
        if operator.key in CARRIED and read is not None and (origin := self._origin.get(id(read))):
            self._origin.update({id(result): (origin[0], result) for result in results})
        rule = RULES.get(operator.key)
        for indices, least, end in rule(arguments) if rule else ():
            if any(value is indices for value in _tensors(arguments)):
                self._narrow(indices, Range(least, end, None))
            else:  # a loss over classes, whose rule yields a masked copy of the labels
                self._narrow(arguments[1], Range(least, end, int(arguments[LABELS])))

    def _narrow(self, read: Tensor, allowed: Range) -> None:
        origin, _ = self._origin.get(id(read), (None, None))
        if origin is not None:
            had = self.found.get(origin, allowed)
            ignored = allowed.ignored if allowed.ignored == had.ignored else None
            self.found[origin] = Range(max(had.least, allowed.least), min(had.end, allowed.end), ignored)


def _tensors(given: Sequence[Any]) -> Iterator[Tensor]:
    """Yields each tensor that a node reads."""
    for value in given:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
