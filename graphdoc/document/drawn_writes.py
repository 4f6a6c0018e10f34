"""Draws that are written in place into a tensor made for them, as stochastic depth and Gumbel noise are, as values.

Each is written as the operators that make the same numbers from the document's draws (draws.py draws them for the
module): bernoulli_ as the mask of a dropout, uniform_ and normal_ moved and scaled, exponential_ by its inverse.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, fx

from graphdoc.document.encode import schema_arguments
from graphdoc.document.randomness import LEAST_EXPONENTIAL
from graphdoc.document.refusals import operator_name

_ATEN: Final = torch.ops.aten
Calling = Callable[..., fx.Node]
"""(operator, its arguments) -> a node in the graph."""
_OVERWRITING: Final = ("bernoulli_.float", "uniform_.default", "normal_.default", "exponential_.default",
                       "fill_.Scalar", "fill_.Tensor", "zero_.default", "copy_.default")  # fmt: skip
_ZEROS: Final = {
    "empty.memory_format": (_ATEN.zeros.default, 1),
    "new_empty.default": (_ATEN.new_zeros.default, 2),
    "empty_like.default": (_ATEN.zeros_like.default, 1),
}
"""The replacement of a tensor without values where all of it is written first, and the number of its arguments."""


def fill_empty(graph: fx.Graph) -> None:
    """Makes zeros of tensors without values whose first reader overwrites them: nothing else may read them."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        made = _ZEROS.get(operator_name(node)) if node.op == "call_function" else None
        first = min(node.users, key=order.__getitem__, default=None)
        if made is not None and first is not None and operator_name(first) in _OVERWRITING and first.args[0] is node:
            node.target, count = made
            node.args, node.kwargs = node.args[:count], {}
            like: Any = node.args[0]
            dtype = node.meta["val"].dtype
            if node.target is not _ATEN.zeros_like.default or dtype != like.meta["val"].dtype:
                node.kwargs = {"dtype": dtype}


def drawn_write(graph: fx.Graph, node: fx.Node, call: Calling) -> None:
    """Replaces a draw in place by one that gives a value, and a write of that value."""
    target, *settings = schema_arguments(node)[:-1]
    value = _VALUES[operator_name(node)](call, target, *settings)
    written = call(_ATEN.copy_.default, target, value)
    node.replace_all_uses_with(written)
    graph.erase_node(node)


def _emit_bernoulli(call: Calling, target: fx.Node, probability: float) -> fx.Node:
    if not 0.0 < probability < 1.0:
        call(_ATEN.rand_like.default, target)  # it is drawn, for any probability
        return call(_ATEN.full_like.default, target, float(probability >= 1.0))
    ones = call(_ATEN.full_like.default, target, 1.0)
    kept = call(_ATEN.ne.Scalar, call(_ATEN.dropout.default, ones, 1.0 - probability, True), 0)
    value: Tensor = target.meta["val"]
    return call(_ATEN.to.dtype, kept, value.dtype)


def _emit_uniform(call: Calling, target: fx.Node, low: float, high: float) -> fx.Node:
    drawn = call(_ATEN.rand_like.default, target)
    return call(_ATEN.add.Tensor, call(_ATEN.mul.Tensor, drawn, float(high - low)), float(low))


def _emit_normal(call: Calling, target: fx.Node, mean: float, deviation: float) -> fx.Node:
    drawn = call(_ATEN.randn_like.default, target)
    return call(_ATEN.add.Tensor, call(_ATEN.mul.Tensor, drawn, float(deviation)), float(mean))


def _emit_exponential(call: Calling, target: fx.Node, rate: float) -> fx.Node:
    drawn = call(_ATEN.log1p.default, call(_ATEN.neg.default, call(_ATEN.rand_like.default, target)))
    least = call(_ATEN.clamp_min.default, call(_ATEN.neg.default, drawn), LEAST_EXPONENTIAL)
    return call(_ATEN.div.Tensor, least, float(rate))


_VALUES: Final[dict[str, Callable[..., fx.Node]]] = {
    "bernoulli_.float": _emit_bernoulli,
    "uniform_.default": _emit_uniform,
    "normal_.default": _emit_normal,
    "exponential_.default": _emit_exponential,
}
DRAWN_WRITES: Final = tuple(_VALUES)
