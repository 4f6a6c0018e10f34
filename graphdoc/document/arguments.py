"""Checks one argument of a node against its type: turns the JSON value into a Python one, or refuses the document."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphdoc.errors import DocumentRefused

INPUT_DTYPES: Final = {"float32": 4, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
"""The element types of inputs, which are sent over the network, and the bytes of one element."""

DTYPES: Final = {**INPUT_DTYPES, "bfloat16": 2, "float16": 2, "float64": 8, "int16": 2, "int8": 1}
"""The element types of values."""

MEMORY_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


INTEGER_LIMIT: Final = 2**40
"""Largest integer of a document, written or computed: squaring one 25 times would take seconds."""

LIST_LIMIT: Final = 4096
NON_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
EQUATION: Final = r"[A-Za-z., ]{1,100}(->[A-Za-z. ]{0,50})?"
"""The equations that einsum accepts."""


@dataclass(frozen=True)
class Reference:
    """The value with this number."""

    value: int


Argument = None | bool | int | float | str | Reference | tuple["Argument", ...]
Kinds = Sequence[str]
"""The kind, "tensor" or "int", of every value defined so far."""


def refuse_unless(condition: bool, detail: str) -> None:
    """Raises DocumentRefused(detail) where the condition does not hold."""
    if not condition:
        raise DocumentRefused(detail)


def check_argument(kind: str, value: Any, kinds: Kinds) -> Argument:
    """Returns the argument of decoded JSON `value` under operators' type `kind`. Raises DocumentRefused."""
    if kind.endswith("?"):
        return None if value is None else check_argument(kind[:-1], value, kinds)
    if "|" in kind:
        refuse_unless(
            isinstance(value, str) and value in kind.split("|"), f"{_shorten_value(value)} is not one of {kind}"
        )
        return str(value)
    return _CHECKS[kind](value, kinds)


def _parse_reference(value: Any, kinds: Kinds, kind: str) -> Reference:
    """Returns the reference to a value of this kind.

    Messages are formatted only when needed, since most of a document is references.
    """
    if not isinstance(value, dict) or set(value) != {"v"}:
        raise DocumentRefused(f"{_shorten_value(value)} is not a {kind} value")
    number = value["v"]
    if type(number) is not int or not 0 <= number < len(kinds):
        raise DocumentRefused(f"there is no value {_shorten_value(number)} yet")
    if kinds[number] != kind:
        raise DocumentRefused(f"value {number} is not of kind {kind}")
    return Reference(number)


def _parse_tensor(value: Any, kinds: Kinds) -> Reference:
    return _parse_reference(value, kinds, "tensor")


def _parse_integer(value: Any, kinds: Kinds) -> int | Reference:
    if isinstance(value, dict):
        return _parse_reference(value, kinds, "int")
    if type(value) is not int or abs(value) > INTEGER_LIMIT:
        raise DocumentRefused(f"{_shorten_value(value)} is not an allowed integer")
    return value


def _parse_float(value: Any, _kinds: Kinds) -> float:
    if isinstance(value, dict):
        word = value.get("f")
        known = len(value) == 1 and isinstance(word, str) and word in NON_FINITE
        refuse_unless(known, f"{_shorten_value(value)} is not a float")
        return NON_FINITE[str(word)]
    refuse_unless(type(value) is float, f"{_shorten_value(value)} is not a float")
    return float(value)


def _parse_number(value: Any, kinds: Kinds) -> Argument:
    is_float = type(value) is float or (isinstance(value, dict) and set(value) == {"f"})
    return _parse_float(value, kinds) if is_float else _parse_integer(value, kinds)


def _parse_operand(value: Any, kinds: Kinds) -> Argument:
    if not isinstance(value, dict) or "v" not in value:
        return _parse_number(value, kinds)
    number = value["v"]
    is_tensor = type(number) is int and 0 <= number < len(kinds) and kinds[number] == "tensor"
    return _parse_reference(value, kinds, "tensor" if is_tensor else "int")


def _parse_bool(value: Any, _kinds: Kinds) -> bool:
    refuse_unless(type(value) is bool, f"{_shorten_value(value)} is not a truth value")
    return bool(value)


def _parse_dtype(value: Any, _kinds: Kinds) -> str:
    refuse_unless(isinstance(value, str) and value in DTYPES, f"{_shorten_value(value)} is not an element type")
    return str(value)


def _parse_memory_format(value: Any, _kinds: Kinds) -> str:
    refuse_unless(value in MEMORY_FORMATS, f"{_shorten_value(value)} is not a memory format")
    return str(value)


def _parse_equation(value: Any, _kinds: Kinds) -> str:
    fits = isinstance(value, str) and re.fullmatch(EQUATION, value) is not None
    refuse_unless(fits, f"{_shorten_value(value)} is not an equation of labels")
    return str(value)


def _build_constant_check(constant: bool | float | None) -> "Check":
    def check_constant(value: Any, _kinds: Kinds) -> Argument:
        same = type(value) is type(constant) and value == constant
        refuse_unless(same, f"{_shorten_value(value)} where {constant} always stands")
        return constant

    return check_constant


def _list_of(check: "Check") -> "Check":
    def check_list(value: Any, kinds: Kinds) -> Argument:
        refuse_unless(
            isinstance(value, list) and len(value) <= LIST_LIMIT, f"{_shorten_value(value)} is not an allowed list"
        )
        return tuple(check(element, kinds) for element in value)

    return check_list


def _shorten_value(value: Any) -> str:
    return repr(value)[:60]


Check = Callable[[Any, Kinds], Argument]
_CHECKS: Final[dict[str, Check]] = {
    "tensor": _parse_tensor,
    "tensors": _list_of(_parse_tensor),
    "operand": _parse_operand,
    "int": _parse_integer,
    "ints": _list_of(_parse_integer),
    "float": _parse_float,
    "number": _parse_number,
    "bool": _parse_bool,
    "dtype": _parse_dtype,
    "memory": _parse_memory_format,
    "floats": _list_of(_parse_float),
    "places": _list_of(lambda value, kinds: None if value is None else _parse_tensor(value, kinds)),
    "equation": _parse_equation,
    "none": _build_constant_check(None),
    "true": _build_constant_check(True),
    "false": _build_constant_check(False),
    "zero": _build_constant_check(0.0),
}
