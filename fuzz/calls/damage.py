"""Changes to an honest call: shapes, element types, numbers, lists, absent values. Each argument stays of its type."""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final

from fuzz.calls.recipes import Made, tensor
from graphdoc.document.arguments import DTYPES, INTEGER_LIMIT, MEMORY_FORMATS
from graphdoc.operators import ALLOWED

HONEST: Final = 0.25
"""The share of calls that change only in element types and in their tensors' numbers."""
FILLS: Final = ("small", "index", "extreme", "crossed", "strange", "zero", "part", "count")
LAYOUTS: Final = ("plain", "turned", "spread", "one")
EDGES: Final = (0, -1, 1, 2, 7, 255, -(2**31), 2**31 - 1, 2**31, 2**33, INTEGER_LIMIT, -INTEGER_LIMIT)
FLOATS: Final = (0.0, -0.0, 0.5, -1.0, 1e-45, 1e30, -1e300, float("inf"), float("-inf"), float("nan"))
EQUATIONS: Final = (
    "ab,cb->ac",
    "a...,a...->...",
    "ij->ji",
    "ab,ab",
    "abc",
    "a,b->ab",
    ",",
    "->",
    "...",
    "aa->a",
    "aab->b",
)


def damaged(key: str, arguments: list[Any], chance: Random) -> list[Any]:
    """The call, changed in place: one to three times, or in nothing but its numbers."""
    if chance.random() < 0.3:
        _retyped(arguments, chance.choice(sorted(DTYPES)))
    if chance.random() < 0.1:
        for made in tensors_of(arguments):
            made["dtype"] = chance.choice((made["dtype"], chance.choice(sorted(DTYPES))))
    if chance.random() < 0.15:
        for made in tensors_of(arguments):
            made["layout"] = chance.choice(LAYOUTS[:2])
    if chance.random() < HONEST:
        for made in tensors_of(arguments):
            made["fill"] = chance.choice((made["fill"], made["fill"], *FILLS))
            made["grad"] = made["grad"] and chance.random() < 0.8
        return arguments
    kinds = ALLOWED[key].arguments
    for _ in range(chance.choice((1, 1, 1, 2, 3)) if kinds else 0):
        place = chance.randrange(len(kinds))
        arguments[place] = _changed(kinds[place], arguments[place], arguments, chance)
    return arguments


def tensors_of(value: Any) -> list[Made]:
    """Every tensor of a call."""
    if isinstance(value, dict):
        return [value]
    return [made for part in value for made in tensors_of(part)] if isinstance(value, list) else []


def _retyped(arguments: list[Any], dtype: str) -> None:
    for made in tensors_of(arguments):
        made["dtype"] = dtype


def _changed(kind: str, value: Any, arguments: list[Any], chance: Random) -> Any:
    if kind.endswith("?"):
        if value is not None and chance.random() < 0.3:
            return None
        return _changed(kind[:-1], _fresh(kind[:-1], chance) if value is None else value, arguments, chance)
    if "|" in kind:
        return chance.choice(kind.split("|"))
    if kind in ("tensors", "places", "ints", "floats"):
        return _list_changed(kind, value, arguments, chance)
    if kind in _CHOSEN:
        return _CHOSEN[kind](chance)
    if kind == "operand" and (not isinstance(value, dict) or chance.random() < 0.2):
        return _fresh("number", chance)
    if kind in ("tensor", "operand"):
        return _tensor_changed(value, arguments, chance)
    return _number_changed(kind, value, chance) if kind in ("int", "number", "float") else value


def _list_changed(kind: str, value: list[Any], arguments: list[Any], chance: Random) -> list[Any]:
    element = {"tensors": "tensor", "places": "tensor", "ints": "int", "floats": "float"}[kind]
    draw = chance.random()
    if draw < 0.15:
        return value[:-1]
    if draw < 0.3:
        return [*value, deepcopy(value[0]) if value else _fresh(element, chance)]
    if draw < 0.35:
        return []
    if draw < 0.45 and kind == "places":
        return [None, *value]
    if not value:
        return [_fresh(element, chance)]
    place = chance.randrange(len(value))
    if value[place] is not None:
        value[place] = _changed(element, value[place], arguments, chance)
    return value


def _fresh(kind: str, chance: Random) -> Any:
    if kind in ("tensor", "operand"):
        return tensor(chance.choice("ffib"), [chance.choice((1, 2, 3)) for _ in range(chance.randrange(4))])
    return [] if kind.endswith("s") else chance.choice(FLOATS) if kind == "float" else chance.choice((0, 1, 2, -1))


def _number_changed(kind: str, value: Any, chance: Random) -> Any:
    draw = chance.random()
    if kind == "float" or (kind == "number" and draw < 0.3):
        return chance.choice(FLOATS)
    near = value if isinstance(value, int) else 1
    return chance.choice((near + 1, near - 1, -near)) if draw < 0.65 else chance.choice(EDGES)


def _tensor_changed(made: Made, arguments: list[Any], chance: Random) -> Made:
    made = deepcopy(made)
    shape = made["shape"]
    draw = chance.random()
    if draw < 0.4 and shape:
        place = chance.randrange(len(shape))
        shape[place] = chance.choice((max(0, shape[place] - 1), shape[place] + 1, 0, 1, 1, 5, 5, 17))
    elif draw < 0.5 and shape:
        del shape[chance.randrange(len(shape))]
    elif draw < 0.6:
        shape.insert(chance.randrange(len(shape) + 1), chance.choice((1, 1, 2, 0)))
    elif draw < 0.7:
        made["dtype"] = chance.choice(sorted(DTYPES))
    elif draw < 0.8:
        made["fill"] = chance.choice(FILLS)
    elif draw < 0.9:
        made["layout"] = chance.choice(LAYOUTS)
        made["grad"] = chance.random() < 0.5
    elif draw < 0.95:
        return deepcopy(chance.choice(tensors_of(arguments) or [made]))
    else:
        made["shape"] = chance.choice(([], [0], [1] * 9, [1] * 33, [1, 3, 0], [1000], [40, 30, 30]))
    return made


_CHOSEN: Final[dict[str, Callable[[Random], Any]]] = {
    "bool": lambda chance: chance.random() < 0.5,
    "dtype": lambda chance: chance.choice(sorted(DTYPES)),
    "memory": lambda chance: chance.choice(MEMORY_FORMATS),
    "equation": lambda chance: chance.choice(EQUATIONS),
}
