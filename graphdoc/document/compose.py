"""Traced calls that correspond to several operators of the language, expanded in the graph before it is read."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import fx

from graphdoc.document.drawn_writes import DRAWN_WRITES, drawn_write, fill_empty
from graphdoc.document.encode import schema_arguments
from graphdoc.document.refusals import operator_name

_ATEN: Final = torch.ops.aten
Writing = Callable[[fx.Graph, fx.Node], None]


def compose_operators(graph: fx.Graph) -> None:
    """Replaces calls in the graph that correspond to several operators, or to one of another name."""
    fill_empty(graph)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        target = _OTHER_NAMES.get(operator_name(node))
        writing = _WRITINGS.get(operator_name(node))
        if target is not None:
            node.target = target
        elif writing is not None:
            with graph.inserting_before(node):
                writing(graph, node)


def _insert_call(graph: fx.Graph, like: fx.Node, target: Any, *arguments: Any, value: Any = None) -> fx.Node:
    """Returns a new node in the place of `like`; unless given, its value comes from a run on tensors without
    elements."""
    made = graph.call_function(target, arguments)
    given = fx.map_arg(arguments, lambda argument: argument.meta["val"]) if value is None else ()
    made.meta = {**like.meta, "val": target(*given) if value is None else value}
    return made


def _build_draw_writing(like: Any) -> Writing:
    """Writes chance in a shape as chance like zeros of that shape."""

    def writing(graph: fx.Graph, node: fx.Node) -> None:
        value = node.meta["val"]
        zeros = _insert_call(graph, node, _ATEN.full.default, node.args[0], 0.0, value=value)
        drawn = _insert_call(graph, node, like, zeros, value=value)
        node.replace_all_uses_with(drawn)
        graph.erase_node(node)

    return writing


def _split_layers(graph: fx.Graph, node: fx.Node) -> None:
    """Splits a recurrent operator with dropout between its layers into one operator a layer, as torch itself does."""
    tensor, states, weights, biased, layers, dropout, training, both_ways, batch_first = schema_arguments(node)
    if not (dropout and training and layers > 1):
        return
    ways, given = 2 if both_ways else 1, states if isinstance(states, list | tuple) else [states]
    each = len(weights) // layers
    tensor = _insert_call(graph, node, _ATEN.transpose.int, tensor, 0, 1) if batch_first else tensor
    whole_out, *whole_states = node.meta["val"]
    value = (whole_out.transpose(0, 1) if batch_first else whole_out, *(state[:ways] for state in whole_states))
    last: list[list[fx.Node]] = [[] for _ in given]
    for layer in range(layers):
        parts = [
            _insert_call(graph, node, _ATEN.slice.Tensor, state, 0, ways * layer, ways * (layer + 1)) for state in given
        ]
        own = weights[each * layer : each * (layer + 1)]
        started = parts if isinstance(states, list | tuple) else parts[0]
        arguments = (tensor, started, own, biased, 1, 0.0, training, both_ways, False)
        whole = _insert_call(graph, node, node.target, *arguments, value=value)
        tensor, *ended = (_insert_call(graph, node, operator.getitem, whole, place) for place in range(1 + len(given)))
        for state, found in zip(ended, last, strict=True):
            found.append(state)
        if layer < layers - 1:
            tensor = _insert_call(graph, node, _ATEN.dropout.default, tensor, dropout, True)
    tensor = _insert_call(graph, node, _ATEN.transpose.int, tensor, 0, 1) if batch_first else tensor
    parts = [tensor, *(_insert_call(graph, node, _ATEN.cat.default, found, 0) for found in last)]
    for user in list(node.users):
        place: Any = user.args[1]
        user.replace_all_uses_with(parts[place])
        graph.erase_node(user)
    graph.erase_node(node)


_OTHER_NAMES: Final = {
    "min.other": _ATEN.minimum.default,
    "max.other": _ATEN.maximum.default,
    "diagonal_copy.default": _ATEN.diagonal.default,
    "vdot.default": _ATEN.dot.default,
    "mH.default": _ATEN.mT.default,
    "adjoint.default": _ATEN.mT.default,
}
"""Valid for real numbers, the only ones of the language."""
_WRITINGS: Final[dict[str, Writing]] = {
    **dict.fromkeys(DRAWN_WRITES, lambda graph, node: drawn_write(graph, node, partial(_insert_call, graph, node))),
    "rand.default": _build_draw_writing(_ATEN.rand_like.default),
    "randn.default": _build_draw_writing(_ATEN.randn_like.default),
    **dict.fromkeys(("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"), _split_layers),
}
