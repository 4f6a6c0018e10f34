"""Finds the permitted whole numbers of a document's inputs without data, from its operators' indices and labels."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.document.calls import TORCH_TYPES, OperatorCall
from graphdoc.document.checks import LABELS, RULES
from graphdoc.document.graph import Scan
from graphdoc.document.interpret import SHAPED, Program, Way
from graphdoc.document.scans import every_step
from graphdoc.figures import Range

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


FOLLOWED: Final = 2**22
"""Elements of a batch up to which its columns are followed; of a larger batch, only readers of the whole are."""
_UNSAID: Final = torch.iinfo(torch.int64).min
"""Marks the absence of an ignored value."""


def find_input_ranges(program: Program, rows: int) -> dict[str, tuple[Range, ...]]:
    """Returns by data input the range that all its readers take, by column; omits inputs that no operator reads
    directly.

    Runs one forward pass over `rows` rows of meta tensors. Raises DocumentRefused.
    """
    data: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for entry in program.document.inputs:
        kept, shape = (data, (rows, *entry.shape)) if entry.kind == "data" else (state, entry.shape)
        kept[entry.name] = torch.empty(shape, dtype=TORCH_TYPES[entry.dtype], device="meta")
    watch = _Watch(data)
    loops = (one for node in program.document.nodes if isinstance(node, Scan) for one in node.body)
    # every step of a loop where its steps look up values, each in another column
    way = Way(SHAPED.call, every_step) if any(one.op in RULES for one in loops) else SHAPED
    with torch.no_grad():
        program.run(state, data, bytes(32), watch, way)
    return {name: taken.ranges() for name, taken in watch.found.items()}


class _Taken:
    """The range that each column of one input takes."""

    def __init__(self, columns: int) -> None:
        limits = torch.iinfo(torch.int64)
        self._taken = torch.tensor([limits.min, limits.max, _UNSAID]).repeat(columns, 1)
        self._read = torch.zeros(columns, dtype=torch.bool)

    def narrow(self, columns: Tensor, allowed: Range) -> None:
        had, ignored = self._taken[columns], _UNSAID if allowed.ignored is None else allowed.ignored
        same = had[:, 2].eq(ignored) | ~self._read[columns]
        self._taken[columns] = torch.stack(
            [had[:, 0].clamp(min=allowed.least), had[:, 1].clamp(max=allowed.end), torch.where(same, ignored, _UNSAID)],
            1,
        )
        self._read[columns] = True

    def ranges(self) -> tuple[Range, ...]:
        """Returns one range for all columns with the same range."""
        places = self._read.nonzero().flatten()
        kinds, which = torch.unique(self._taken[places], dim=0, return_inverse=True)
        found = []
        for number, (least, end, ignored) in enumerate(kinds.tolist()):
            columns = places[which == number].tolist()
            whole = len(columns) == len(self._read)
            ignored_index = None if ignored == _UNSAID else ignored
            found.append(Range(least, end, ignored_index, () if whole else tuple(columns)))
        return tuple(found)


@dataclass(frozen=True)
class _Part:
    """A tensor that holds elements of an input; `columns` has the place of each in its row."""

    name: str
    tensor: Tensor
    """Kept alive, so that its identity stays unique."""
    columns: Tensor


class _Watch:
    """Follows data inputs from node to node."""

    def __init__(self, data: Mapping[str, Tensor]) -> None:
        self.found: dict[str, _Taken] = {}
        self._origin: dict[int, _Part] = {}
        self._columns: dict[str, int] = {}
        for name, tensor in data.items():
            self._columns[name] = columns = max(1, tensor[0].numel()) if tensor.numel() <= FOLLOWED else 1
            shape = tensor.shape[1:] if tensor.numel() <= FOLLOWED else (1,) * (tensor.dim() - 1)
            places = torch.arange(columns)[: math.prod(shape)].view(1, *shape).expand(tensor.shape)
            self._origin[id(tensor)] = _Part(name, tensor, places)

    def __call__(
        self,
        operator: OperatorCall,
        arguments: Sequence[Any],
        results: Sequence[Any],
        times: int,  # noqa: ARG002
    ) -> None:
        read = next(_iterate_read_tensors(arguments), None)
        if operator.key in CARRIED and read is not None and (origin := self._origin.get(id(read))):
            self._carry_columns(origin, operator, arguments, results)
        rule = RULES.get(operator.key)
        for indices, least, end in rule(arguments) if rule else ():
            if any(value is indices for value in _iterate_read_tensors(arguments)):
                self._narrow_origin(indices, Range(least, end, None))
            else:  # a loss over classes, whose rule yields a masked copy of the labels
                self._narrow_origin(arguments[1], Range(least, end, int(arguments[LABELS])))

    def _carry_columns(
        self, origin: _Part, operator: OperatorCall, arguments: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """Moves the places in the same way as the elements."""
        if origin.columns.numel() > FOLLOWED:
            columns: Sequence[Tensor] = [origin.columns.flatten()[:1].expand(result.shape) for result in results]
            if self._columns[origin.name] > 1 or any(r.numel() != origin.tensor.numel() for r in results):
                return
        else:
            given = [origin.columns if argument is origin.tensor else argument for argument in arguments]
            named = {name: given[place] for place, name in operator.keywords.items()}
            carried = operator.call(*(a for place, a in enumerate(given) if place not in operator.keywords), **named)
            columns = [carried] if isinstance(carried, Tensor) else carried
        for result, places in zip(results, columns, strict=True):
            self._origin[id(result)] = _Part(origin.name, result, places)

    def _narrow_origin(self, read: Tensor, allowed: Range) -> None:
        origin = self._origin.get(id(read))
        if origin is not None:
            columns = origin.columns[:1] if origin.columns.numel() > FOLLOWED else origin.columns
            taken = self.found.setdefault(origin.name, _Taken(self._columns[origin.name]))
            taken.narrow(torch.unique(columns), allowed)


def _iterate_read_tensors(given: Sequence[Any]) -> Iterator[Tensor]:
    """Yields each tensor that a node reads."""
    for value in given:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _iterate_read_tensors(value)
