"""Prepares a checked document: steps over one list of values, with every argument an index and every call resolved.

The list has the document's values, then the run's seed and device, then every constant argument.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from torch import Tensor

from graphdoc.conditions.condition_rules import Condition
from graphdoc.document.arguments import Reference
from graphdoc.document.calls import OPERATORS, TORCH_MEMORY_FORMATS, TORCH_TYPES, OperatorCall
from graphdoc.document.checks import Rule
from graphdoc.document.graph import Document, Node, Scan
from graphdoc.document.index_watch import guard_indices

Getter = Callable[[Sequence[Any]], Sequence[Any]]
"""Returns the arguments of one step, from all values."""
CHECKED_BY_THEMSELVES: Final = ("cpu", "meta")
"""Devices whose kernels check every index, or have no elements to check."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One node.

    Its results go to `first` and the following places. `single` means that the call returns one value instead of a
    list.
    """

    call: Callable[..., Any]
    get: Getter
    condition: Condition | None
    single: bool
    first: int
    count: int
    dead_after: tuple[int, ...]
    name: str
    operator: OperatorCall
    arguments: Getter
    """The arguments in the table's order, for a Watcher."""
    number: int
    """Its number among all nodes, those of bodies included."""


@dataclass(frozen=True, slots=True)
class PreparedScan:
    """A scan; its arguments are (start, given, fixed)."""

    scan: Scan
    body: "PreparedNodes"
    get: Getter
    first: int
    count: int
    dead_after: tuple[int, ...]
    name: str
    number: int


@dataclass(frozen=True)
class PreparedNodes:
    """The nodes of a document, or of a scan's body."""

    steps: tuple[PreparedCall | PreparedScan, ...]
    values: list[Any]
    """The initial values of a run: the constants at their places, everything else None."""
    seed: int
    device: int


def prepare_document(document: Document) -> PreparedNodes:
    """Returns the document ready to run."""
    kept = {document.loss, *document.metrics.values(), *document.updates.values()}
    kept |= set() if document.weight is None else {document.weight}
    return _prepare_nodes(len(document.inputs), document.nodes, kept, itertools.count())


def _prepare_nodes(inputs: int, nodes: Sequence[Node | Scan], kept: set[int], numbers: Iterator[int]) -> PreparedNodes:
    """Prepares nodes. `kept` are the values that are read when all nodes have run; inputs are kept too."""
    preparation = _Preparation(max((node.results[-1] + 1 for node in nodes), default=inputs), numbers)
    last: dict[int, int] = {}
    for place, node in enumerate(nodes):
        last.update(dict.fromkeys(node.results, place))
        last.update(dict.fromkeys(_list_references(node.arguments), place))
    dying: dict[int, list[int]] = {}  # by node: the values that no later one reads
    for value, place in last.items():
        if value not in kept and value >= inputs:
            dying.setdefault(place, []).append(value)
    steps = tuple(preparation.step(node, tuple(dying.get(place, ()))) for place, node in enumerate(nodes))
    return PreparedNodes(steps, preparation.values, preparation.seed, preparation.device)


class _Preparation:
    def __init__(self, count: int, numbers: Iterator[int]) -> None:
        self.seed, self.device = count, count + 1
        self.values: list[Any] = [None] * (count + 2)
        self._places: dict[tuple[type, Any], int] = {}
        self._numbers = numbers

    def step(self, node: Node | Scan, dead_after: tuple[int, ...]) -> PreparedCall | PreparedScan:
        return (
            self._prepare_operator(node, dead_after) if isinstance(node, Node) else self._prepare_scan(node, dead_after)
        )

    def _prepare_scan(self, scan: Scan, dead_after: tuple[int, ...]) -> PreparedScan:
        body = _prepare_nodes(scan.inputs, scan.body, {*scan.carried, *scan.last, *scan.every}, self._numbers)
        first, count, number = scan.results[0], len(scan.results), next(self._numbers)
        return PreparedScan(
            scan, body, partial(_gather_nested_values, scan.arguments), first, count, dead_after, scan.op, number
        )

    def _prepare_operator(self, node: Node, dead_after: tuple[int, ...]) -> PreparedCall:
        operator = OPERATORS[node.op]
        arguments: list[Any] = []
        for kind, argument in zip(operator.entry.arguments, node.arguments, strict=True):
            if kind.startswith("dtype") and argument is not None:
                arguments.append(TORCH_TYPES[str(argument)])
            elif kind.startswith("memory") and argument is not None:
                arguments.append(TORCH_MEMORY_FORMATS[str(argument)])
            else:
                arguments.append(argument)
        call, by_place = self._bind_call(operator, arguments)
        several = operator.entry.gives_list or len(operator.entry.results) != 1
        getter = self._build_getter(by_place, operator.entry.extra)
        as_given = len(by_place) == len(arguments) and not operator.entry.extra and not operator.keywords
        watched = getter if as_given else self._build_getter(arguments, None)
        first, count = node.results[0], len(node.results)
        number = next(self._numbers)
        return PreparedCall(
            call, getter, operator.condition, not several, first, count, dead_after, node.op, operator, watched, number
        )

    def _bind_call(self, operator: OperatorCall, arguments: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
        """Returns the callable and its positional arguments; constant keyword arguments are bound to it."""
        call = operator.call
        if operator.indices is not None:
            call = partial(_call_checked, operator.key, operator.indices, call)
        by_name = {name: arguments[place] for place, name in operator.keywords.items()}
        by_place = [argument for place, argument in enumerate(arguments) if place not in operator.keywords]
        if any(_list_references((argument,)) for argument in by_name.values()):
            return partial(_call_with_names, call, tuple(by_name)), [*by_place, *by_name.values()]
        return (partial(call, **by_name) if by_name else call), by_place

    def _build_getter(self, arguments: Sequence[Any], extra: str | None) -> Getter:
        own = {"seed": self.seed, "device": self.device}
        items = [*arguments, Reference(own[extra])] if extra else list(arguments)
        if any(_has_references(item) for item in items):
            return partial(
                _gather_arguments, tuple(item if _has_references(item) else self._assign_place(item) for item in items)
            )
        places = [self._assign_place(item) for item in items]
        return itemgetter(*places) if len(places) > 1 else partial(_read_single_value, places[0])

    def _assign_place(self, item: Any) -> int:
        if isinstance(item, Reference):
            return item.value
        key = (type(item), item if item is None or isinstance(item, bool | int | str) else repr(item))
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(list(item) if isinstance(item, tuple) else item)
        return self._places[key]


def _has_references(item: Any) -> bool:
    """Returns whether the item is a list that contains values."""
    return isinstance(item, tuple) and bool(_list_references(item))


def _gather_arguments(items: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a node that takes a list with values in it."""
    return [
        values[item]
        if isinstance(item, int)
        else [values[part.value] if isinstance(part, Reference) else part for part in item]
        for item in items
    ]


def _gather_nested_values(item: Any, values: Sequence[Any]) -> Any:
    """Returns nested lists of references with the values in their places."""
    return values[item.value] if isinstance(item, Reference) else [_gather_nested_values(part, values) for part in item]


def _read_single_value(place: int, values: Sequence[Any]) -> tuple[Any]:
    return (values[place],)


def _call_with_names(call: Callable[..., Any], names: tuple[str, ...], *arguments: Any) -> Any:
    named: Mapping[str, Any] = dict(zip(names, arguments[-len(names) :], strict=True))
    return call(*arguments[: -len(names)], **named)


def _call_checked(key: str, rule: Rule, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls the operator, after checking its indices where the device itself would not."""
    tensor: Tensor = arguments[0]
    if tensor.device.type not in CHECKED_BY_THEMSELVES:
        return call(*guard_indices(key, rule, arguments), **named)
    return call(*arguments, **named)


def _list_references(arguments: Sequence[Any]) -> list[int]:
    numbers = []
    for argument in arguments:
        if isinstance(argument, Reference):
            numbers.append(argument.value)
        elif isinstance(argument, tuple):
            numbers += _list_references(argument)
    return numbers
