"""Reads the nodes of a document from JSON into checked ones: operators, and scans over bodies of operators. No torch.

    {"op": a key of operators.ALLOWED, "args": [one per argument], "out": [next values]}
    {"op": "scan", "args": [length, [start], [[a value for each step], …], [fixed], [[first, step], …]],
     "body": {"nodes": […], "carried": [value], "last": [value], "every": [value]}, "out": [next values]}

`graph.Scan` explains the parts of a scan. A counter may stand only where `operators.counted` permits it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from graphdoc.document.arguments import LIST_LIMIT, Reference, check_argument, refuse_unless
from graphdoc.document.graph import Node, Scan
from graphdoc.errors import DocumentRefused
from graphdoc.operators import ALLOWED
from graphdoc.operators.entry import COUNTED

NODES_LIMIT: Final = 20_000
VALUES_LIMIT: Final = 100_000
CALLS_LIMIT: Final = 100_000
"""The most operators that one run of a scan calls."""
COUNTER_LIMIT: Final = 2**31
"""The limit of a counter's first number and of its increment."""
_Read = TypeVar("_Read")
_BODY: Final = {"nodes", "carried", "last", "every"}
_KEYS: Final = {"op", "args", "out"}
_ARGUMENTS: Final = 5
_COUNTER: Final = "counter"
"""The kind of a body's counters alone: see COUNTED."""


def read_nodes(value: Any, kinds: list[str]) -> tuple[Node | Scan, ...]:
    """Returns the nodes of a document, and adds the kind of each result to `kinds`. Raises DocumentRefused."""
    return tuple(
        _parse_each_node(
            value, kinds, lambda item: _parse_scan(item, kinds) if _is_scan(item) else _parse_node(item, kinds)
        )
    )


def _parse_each_node(value: Any, kinds: list[str], read: Callable[[Any], _Read]) -> Iterator[_Read]:
    known = isinstance(value, list) and len(value) <= NODES_LIMIT
    refuse_unless(known, f"nodes are not a list of at most {NODES_LIMIT}")
    for number, item in enumerate(value):
        refuse_unless(isinstance(item, dict), f"node {number} is not an object")
        try:
            yield read(item)
        except DocumentRefused as error:
            raise DocumentRefused(f"node {number}: {error.detail}") from None
        refuse_unless(len(kinds) <= VALUES_LIMIT, f"more than {VALUES_LIMIT} values")


def _is_scan(item: Mapping[str, Any]) -> bool:
    return item.get("op") == Scan.op


def _parse_node(item: Mapping[str, Any], kinds: list[str], counters: range = range(0)) -> Node:
    refuse_unless(set(item) == _KEYS, "its keys are not args, op, out")
    op, args = item["op"], item["args"]
    entry = ALLOWED.get(op) if isinstance(op, str) else None
    if entry is None:
        raise DocumentRefused(f"no operator {str(op)[:80]!r} is allowed")
    refuse_unless(isinstance(args, list) and len(args) == len(entry.arguments), f"{op} takes others")
    try:
        checked = tuple(
            Reference(value["v"])
            if counters and place in COUNTED.get(op, ()) and _is_counter_reference(value, counters)
            else check_argument(kind, value, kinds)
            for place, (kind, value) in enumerate(zip(entry.arguments, args, strict=True))
        )
    except DocumentRefused as error:
        raise DocumentRefused(f"{op}: {error.detail}") from None
    results = _parse_results(item["out"], len(kinds), None if entry.gives_list else len(entry.results))
    kinds += ["tensor"] * len(results) if entry.gives_list else entry.results
    return Node(op, checked, results)


def _is_counter_reference(value: Any, counters: range) -> bool:
    return isinstance(value, dict) and set(value) == {"v"} and type(value["v"]) is int and value["v"] in counters


def _parse_results(value: Any, first: int, count: int | None) -> tuple[int, ...]:
    refuse_unless(isinstance(value, list) and 1 <= len(value) <= VALUES_LIMIT, "out is not a list")
    refuse_unless(count is None or len(value) == count, f"it gives {count} values")
    in_order = all(type(result) is int for result in value) and value == list(range(first, first + len(value)))
    refuse_unless(in_order, "its values are not the next ones")
    return tuple(value)


def _parse_scan(item: Mapping[str, Any], kinds: list[str]) -> Scan:
    refuse_unless(set(item) == {*_KEYS, "body"}, "the keys of a scan are not args, body, op, out")
    args, body = item["args"], item["body"]
    refuse_unless(isinstance(args, list) and len(args) == _ARGUMENTS, f"a scan has {_ARGUMENTS} arguments")
    length = args[0]
    refuse_unless(type(length) is int and 1 <= length <= CALLS_LIMIT, f"its steps are not 1 to {CALLS_LIMIT}")
    start = _parse_tensor_list(args[1], kinds)
    fixed = tuple(_parse_value_reference(one, "operand", kinds) for one in _parse_list(args[3], "fixed values"))
    given = tuple(_parse_tensor_list(values, kinds) for values in _parse_list(args[2], "given"))
    refuse_unless(all(len(values) == length for values in given), "what is given is not one value for each step")
    counters = _parse_list(args[4], "counters")
    for pair in counters:
        known = isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)
        refuse_unless(known and all(abs(one) <= COUNTER_LIMIT for one in pair), f"{str(pair)[:60]} is not a counter")
    inner = ["tensor"] * (len(start) + len(given)) + [kinds[one.value] for one in fixed]
    numbers = range(len(inner), len(inner) + len(counters))
    inner += [_COUNTER] * len(counters)
    refuse_unless(
        isinstance(body, dict) and set(body) == _BODY, f"the keys of a body are not {', '.join(sorted(_BODY))}"
    )
    nodes = tuple(_parse_each_node(body["nodes"], inner, lambda one: _parse_node(_not_nested(one), inner, numbers)))
    calls = length * len(nodes)
    refuse_unless(0 < calls <= CALLS_LIMIT, f"it calls {calls} operators in {length} steps, not 1 to {CALLS_LIMIT}")
    for value in (body["carried"], body["last"], body["every"]):
        refuse_unless(isinstance(value, list) and len(value) <= LIST_LIMIT, "what a body gives is not a list")
        for number in value:
            known = type(number) is int and 0 <= number < len(inner) and inner[number] == "tensor"
            refuse_unless(known, f"{str(number)[:60]} is not a tensor of the body")
    carried, last, every = (tuple(body[key]) for key in ("carried", "last", "every"))
    refuse_unless(len(carried) == len(start), "as many values are not carried on as it starts with")
    results = _parse_results(item["out"], len(kinds), len(last) + length * len(every))
    kinds += ["tensor"] * len(results)
    pairs = tuple((first, step) for first, step in counters)
    return Scan(length, start, given, fixed, pairs, nodes, carried, last, every, results)


def _not_nested(item: Mapping[str, Any]) -> Mapping[str, Any]:
    refuse_unless(not _is_scan(item), "a scan inside a scan, which the language does not have: write the inner one out")
    return item


def _parse_list(value: Any, subject: str) -> list[Any]:
    known = isinstance(value, list) and len(value) <= LIST_LIMIT
    refuse_unless(known, f"{subject} are not a list of at most {LIST_LIMIT}")
    return list(value)


def _parse_tensor_list(value: Any, kinds: list[str]) -> tuple[Reference, ...]:
    known = isinstance(value, list) and len(value) <= CALLS_LIMIT
    refuse_unless(known, f"{str(value)[:60]} is not a list of values")
    return tuple(_parse_value_reference(entry, "tensor", kinds) for entry in value)


def _parse_value_reference(value: Any, kind: str, kinds: list[str]) -> Reference:
    argument = check_argument(kind, value, kinds)
    if not isinstance(argument, Reference):
        raise DocumentRefused(f"{str(value)[:60]} is not a value")
    return argument
