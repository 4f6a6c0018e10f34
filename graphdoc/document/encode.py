"""One node of a functional graph as one node of the document: the operator's key, its arguments, its results."""

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import fx

from graphdoc.document.calls import TORCH_MEMORY_FORMATS, TORCH_TYPES
from graphdoc.document.refusals import COMPLEX, build_document_refusal, operator_name
from graphdoc.errors import DocumentRefused
from graphdoc.operators import ALLOWED

DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_TYPES.items()}
MEMORY_NAMES: Final = {memory: name for name, memory in TORCH_MEMORY_FORMATS.items()}
_ENUMERATED: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
"""The name of a memory format in a schema's default: by c10's enumeration."""
_TO_THE_END: Final = 2**63 - 1
"""The end of a slice without an end, as traced."""


class Number(Protocol):
    """The number of the value that a traced node stands for."""

    def __call__(self, node: fx.Node) -> int: ...


@dataclass(frozen=True)
class Operation:
    """An operator's key, its arguments in the table's order, and the results of the traced node that it gives."""

    op: str
    arguments: tuple[Any, ...]
    results: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Same:
    """The traced node has the value of another one."""

    node: fx.Node


def schema_arguments(node: fx.Node) -> tuple[Any, ...]:
    """Returns one value per argument of the ATen schema: given by place, given by name, or the default."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise build_document_refusal(node, "is no operator")
    given = dict(enumerate(node.args))
    return tuple(
        given[place] if place in given else node.kwargs.get(entry.name, entry.default_value)
        for place, entry in enumerate(target._schema.arguments)
    )


def build_plain_operation(node: fx.Node) -> Operation:
    """Returns the ATen operator itself. Raises DocumentRefused where it is not allowed."""
    name = operator_name(node)
    if name not in ALLOWED or ALLOWED[name].own:
        raise build_document_refusal(node, "is not in the language")
    places: Any = node.args[1] if name == "index.Tensor" else ()
    indices = [place.meta["val"] for place in places if isinstance(place, fx.Node)]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        raise build_document_refusal(node, "takes a mask as an index")
    count = len(node.meta["val"]) if ALLOWED[name].gives_list else len(ALLOWED[name].results)
    return Operation(name, schema_arguments(node), tuple(range(count)))


def encode_argument(kind: str, value: Any, number: Number) -> Any:
    """Returns the JSON of one argument of this type. Raises DocumentRefused."""
    if kind.startswith("none"):
        return value if isinstance(value, str) else None
    if kind in ("int?", "int") and value == _TO_THE_END:
        return None
    if isinstance(value, fx.Node):
        return {"v": number(value)}
    if isinstance(value, list | tuple):
        return [encode_argument(_ELEMENTS.get(kind.removesuffix("?"), kind), element, number) for element in value]
    return _encode_scalar(kind, value)


_ELEMENTS: Final = {"tensors": "tensor", "places": "tensor?", "ints": "int", "floats": "float"}


def _encode_scalar(kind: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, torch.dtype):
        return _encode_name(DTYPE_NAMES, value)
    if isinstance(value, torch.memory_format):
        return _encode_name(MEMORY_NAMES, value)
    if kind.startswith("memory"):
        return _ENUMERATED[value]
    if kind.startswith(("bool", "true", "false")):
        return bool(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) or kind.startswith(("float", "zero")):
        return float(value) if math.isfinite(value) else {"f": str(float(value))}
    if isinstance(value, int):
        return value
    raise DocumentRefused(f"an argument {str(value)[:80]!r}, which the language does not have")


def _encode_name(names: dict[Any, str], value: Any) -> str:
    if value not in names:
        suggestion = f"; {COMPLEX}" if isinstance(value, torch.dtype) and value.is_complex else ""
        raise DocumentRefused(f"{value}, which the language does not have{suggestion}")
    return names[value]
