"""Finds in a trace the divisor of a loss, where it is a sum over the rows and not their number.

A mean over all but padding weighs a row by its targets, and one under class weights by its classes. Such a loss L over
rows of the weight W is a sum S / W; of two batches it is (L1 W1 + L2 W2) / (W1 + W2), and not their mean. So the
document gives W too. The divisor is read off the loss's last nodes:

    cross_entropy_loss, nll_loss     W = the targets that are not ignored, each times its class's weight
    S / W                            where W is computed from data alone; of a clamped W, 0 where it was 0 before
    L + L', c L                      as L, where L' has the same W or reads no data

It is a weight if it is the sum of its values for the example's rows alone, and these differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from graphdoc.document.encode import schema_arguments
from graphdoc.document.exported import list_ancestors, tensor_of
from graphdoc.document.functional import Trace
from graphdoc.document.refusals import operator_name

Data = Mapping[str, Tensor]
_ATEN: Final = torch.ops.aten
_MEAN: Final = 1
"""The number by which ATen's losses name the reduction to a mean."""
_NEAR: Final = 1e-4
_CLASSES: Final = ("cross_entropy_loss.default", "nll_loss.default", "nll_loss_nd.default")
_SUMS: Final = ("add.Tensor", "sub.Tensor")
_SCALED: Final = ("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar")
_SAME: Final = ("neg.default", "alias.default", "clone.default", "view.default", "reshape.default", "to.dtype",
                "squeeze.default", "detach.default")  # fmt: skip
_CLAMPED: Final = ("clamp_min.default", "clamp.default")
_ERRORS: Final = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError)


@dataclass(frozen=True)
class _Targets:
    """Labels, the weight of each class, and the label that stands for none."""

    labels: fx.Node
    classes: fx.Node | None
    ignored: int


@dataclass(frozen=True)
class _Divisor:
    node: fx.Node


def add_loss_weight(trace: Trace, program: ExportedProgram, data: Sequence[str], example: Data) -> fx.Node | None:
    """Returns the weight of the loss, in nodes that are added to the trace; None where rows weigh alike.

    `data` has the names of its inputs in order, `example` rows of them, two at least.
    """
    if not isinstance(trace.results[0], fx.Node):
        return None
    inputs = _Inputs.of(trace, program, data)
    found = _find_loss_divisor(trace.results[0], inputs)
    if found is None:
        return None
    graph, before = trace.results[0].graph, set(trace.results[0].graph.nodes)
    with graph.inserting_before(next(iter(reversed(graph.nodes)))):
        node = _write_weight(graph, found)
    made = [one for one in graph.nodes if one not in before]
    if node.meta["val"].dim() == 0 and _has_unequal_rows(node, inputs, example):
        trace.nodes = [*trace.nodes, *made]
        return node
    for one in reversed(made):
        graph.erase_node(one)
    return None


@dataclass(frozen=True)
class _Inputs:
    """The placeholders of a trace: each data input's name, the tensors of buffers and constants, the parameters."""

    data: dict[fx.Node, str]
    tensors: dict[fx.Node, Tensor]
    parameters: frozenset[fx.Node]

    @classmethod
    def of(cls, trace: Trace, program: ExportedProgram, names: Sequence[str]) -> "_Inputs":
        kinds = {node: entry.kind for node, entry in trace.inputs}
        data = [node for node, kind in kinds.items() if kind == InputKind.USER_INPUT]
        parameters = frozenset(node for node, kind in kinds.items() if kind == InputKind.PARAMETER)
        others = [pair for pair in trace.inputs if pair[0] not in parameters and pair[0] not in data]
        tensors = {node: tensor_of(program, entry).detach() for node, entry in others}
        return cls(dict(zip(data, names, strict=True)), tensors, parameters)

    def reads_data(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and not self.data.keys().isdisjoint(list_ancestors([node]))

    def reads_only_data(self, node: Any) -> bool:
        return self.reads_data(node) and self.parameters.isdisjoint(list_ancestors([node]))


def _find_loss_divisor(node: Any, inputs: _Inputs) -> _Targets | _Divisor | None:
    """Returns the divisor of the loss that ends in this node."""
    name = operator_name(node) if isinstance(node, fx.Node) and node.op == "call_function" else ""
    if name in _CLASSES:
        _, labels, classes, reduction, ignored, *_ = schema_arguments(node)
        counted = reduction == _MEAN and isinstance(labels, fx.Node) and not labels.meta["val"].is_floating_point()
        return _Targets(labels, classes, int(ignored)) if counted else None
    if name in _SAME:
        return _find_loss_divisor(node.args[0], inputs)
    if name in _SCALED:
        first, second = node.args[:2]
        if name == "div.Tensor" and inputs.reads_only_data(second):
            return _Divisor(second)
        return _find_loss_divisor(first, inputs) if not inputs.reads_data(second) else None
    if name in _SUMS:
        parts = [part for part in node.args[:2] if inputs.reads_data(part)]
        found = [_find_loss_divisor(part, inputs) for part in parts]
        divided = [vars(one) for one in found if one is not None]
        return (
            found[0] if found and len(divided) == len(found) and _is_same_argument(divided[:-1], divided[1:]) else None
        )
    return None


def _is_same_argument(one: Any, other: Any) -> bool:
    """Returns whether two arguments of nodes are written alike, down to their inputs."""
    if isinstance(one, fx.Node) and isinstance(other, fx.Node) and one.op == other.op == "call_function":
        return one is other or (
            one.target == other.target and _is_same_argument((one.args, one.kwargs), (other.args, other.kwargs))
        )
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same_argument(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same_argument, one, other))
    return bool(one == other)


def _write_weight(graph: fx.Graph, found: _Targets | _Divisor) -> fx.Node:
    """Returns the weight as a node."""
    if isinstance(found, _Divisor):
        # the divisor of a sum; 0, for a batch without a target, where only a clamp makes it more
        node = found.node
        if operator_name(node) not in _CLAMPED:
            return node
        within = _insert_meta_call(graph, _ATEN.ne.Scalar, node.args[0], 0)
        return _insert_meta_call(graph, _ATEN.mul.Tensor, node, within)
    taken = _insert_meta_call(graph, _ATEN.ne.Scalar, found.labels, found.ignored)
    if found.classes is None:
        return _insert_meta_call(graph, _ATEN.sum.default, taken)
    none = _insert_meta_call(graph, _ATEN.eq.Scalar, found.labels, found.ignored)
    known = _insert_meta_call(graph, _ATEN.masked_fill.Scalar, found.labels, none, 0)
    each = _insert_meta_call(graph, _ATEN.index_select.default, found.classes, 0, _insert_flatten(graph, known))
    return _insert_meta_call(
        graph, _ATEN.sum.default, _insert_meta_call(graph, _ATEN.mul.Tensor, each, _insert_flatten(graph, taken))
    )


def _insert_flatten(graph: fx.Graph, node: fx.Node) -> fx.Node:
    return _insert_meta_call(graph, _ATEN.flatten.using_ints, node, 0, -1)


def _insert_meta_call(graph: fx.Graph, target: Any, *arguments: Any) -> fx.Node:
    made = graph.call_function(target, arguments)
    made.meta["val"] = target(*fx.map_arg(arguments, lambda argument: argument.meta["val"]))
    return made


def _has_unequal_rows(weight: fx.Node, inputs: _Inputs, example: Data) -> bool:
    """Returns whether the weight of the example is the sum of its rows', and these are not alike.

    Each row is taken twice: the trace takes two rows and more.
    """
    count = len(next(iter(example.values())))
    try:
        rows = [_evaluate_weight(weight, inputs, example, [row, row]) / 2 for row in range(count)]
        whole = _evaluate_weight(weight, inputs, example, list(range(count)))
    except _ERRORS:
        return False
    adds_up = abs(whole - sum(rows)) <= _NEAR * max(map(abs, [whole, *rows]))
    return adds_up and min(rows) >= 0.0 and max(rows) > min(rows)


def _evaluate_weight(weight: fx.Node, inputs: _Inputs, example: Data, rows: list[int]) -> float:
    values: dict[fx.Node, Any] = {**inputs.tensors}
    values |= {node: example[name][rows] for node, name in inputs.data.items()}
    needed = list_ancestors([weight])
    with torch.no_grad():
        for node in weight.graph.nodes:
            if node not in needed or node in values:
                continue
            if node.op != "call_function":
                raise TypeError(f"{node} has no value here")
            arguments, named = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*arguments, **named)
    return float(values[weight])
