"""One node of a decomposed graph as one node of the document: the operator's key, its arguments, its results."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.interpret import TORCH_MEMORY_FORMATS, TORCH_TYPES
from gradmarket.market.model.document.signatures import ATEN, SIGNATURES

DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_TYPES.items()}
MEMORY_NAMES: Final = {memory: name for name, memory in TORCH_MEMORY_FORMATS.items()}
_TO_THE_END: Final = 2**63 - 1
"""How a slice without an end is traced."""

Number = Callable[[fx.Node], int]
"""The number of the value that a traced node stands for."""


@dataclass(frozen=True)
class Operation:
    """An operator's key, its arguments in the signature's order, and which results of the traced node it gives."""

    op: str
    arguments: tuple[Any, ...]
    results: tuple[int, ...] = (0,)


def operation(node: fx.Node, dropout_site: int) -> Operation:
    """What a traced call does, in the language's words. Raises DocumentRefused where it has none."""
    if node.target in _INTEGERS:
        return Operation(_INTEGERS[node.target], tuple(node.args))
    name = aten_name(node)
    if name in _REPHRASED:
        return _REPHRASED[name](node, dropout_site)
    if name not in ATEN:
        raise DocumentRefused(f"the model uses {name}, which the language does not have")
    results = SIGNATURES[name].results
    count = len(node.meta["val"]) if SIGNATURES[name].gives_list else len(results)
    return Operation(name, _bound_arguments(node), tuple(range(count)))


def aten_name(node: fx.Node) -> str:
    """`name.overload` of the ATen operator that a traced node calls. Raises DocumentRefused."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        raise DocumentRefused(f"the model calls {target}, which the language does not have")
    return f"{target._schema.name.removeprefix('aten::')}.{target._schema.overload_name or 'default'}"


def encoded(kind: str, value: Any, number: Number) -> Any:
    """The JSON of one argument of this type. Raises DocumentRefused."""
    if kind.startswith("none"):
        return value if isinstance(value, str) else None
    if kind in ("int?", "int") and value == _TO_THE_END:
        return None
    if isinstance(value, fx.Node):
        return {"v": number(value)}
    if isinstance(value, list | tuple):
        return [encoded(kind.removesuffix("?").removesuffix("s"), element, number) for element in value]
    return _scalar(kind, value)


def _scalar(kind: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, torch.dtype):
        return _known(DTYPE_NAMES, value)
    if isinstance(value, torch.memory_format):
        return _known(MEMORY_NAMES, value)
    if kind.startswith("bool"):
        return bool(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) or kind.startswith("float"):
        return float(value) if math.isfinite(value) else {"f": str(float(value))}
    if isinstance(value, int):
        return value
    raise DocumentRefused(f"an argument {str(value)[:80]!r}, which the language does not have")


def _known(names: Mapping[Any, str], value: Any) -> str:
    if value not in names:
        raise DocumentRefused(f"the model uses {value}, which the language does not have")
    return names[value]


def _bound_arguments(node: fx.Node) -> tuple[Any, ...]:
    """One value per argument of the ATen schema: given by place, given by name, or the default."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise DocumentRefused(f"the model calls {target}, which the language does not have")
    given = dict(enumerate(node.args))
    return tuple(
        given[place] if place in given else node.kwargs.get(entry.name, entry.default_value)
        for place, entry in enumerate(target._schema.arguments)
    )


def _batch_norm(node: fx.Node, _site: int) -> Operation:
    tensor, weight, bias, mean, variance, training, momentum, eps = _bound_arguments(node)
    arguments = (tensor, weight, bias, mean, variance, momentum, eps)
    return Operation("batch_norm.training", arguments, (0, 3, 4)) if training else _evaluation(arguments)


def _batch_norm_evaluation(node: fx.Node, _site: int) -> Operation:
    return _evaluation(_bound_arguments(node))


def _evaluation(arguments: tuple[Any, ...]) -> Operation:
    return Operation("batch_norm.evaluation", arguments)


def _dropout(node: fx.Node, site: int) -> Operation:
    tensor, probability, training = _bound_arguments(node)
    if not training:
        return Operation("alias.default", (tensor,))
    return Operation("dropout.hash", (tensor, probability, site))


def _copy(node: fx.Node, _site: int) -> Operation:
    """ATen's own functional copy has no derivative."""
    return Operation("copy.broadcast", _bound_arguments(node)[:2])


def _size(node: fx.Node, _site: int) -> Operation:
    return Operation("integer.size", _bound_arguments(node))


_INTEGERS: Final[dict[Any, str]] = {
    operator.add: "integer.add",
    operator.sub: "integer.sub",
    operator.mul: "integer.mul",
    operator.floordiv: "integer.floordiv",
}
_REPHRASED: Final[dict[str, Callable[[fx.Node, int], Operation]]] = {
    "_native_batch_norm_legit_functional.default": _batch_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm_evaluation,
    "copy.default": _copy,
    "native_dropout.default": _dropout,
    "sym_size.int": _size,
}
