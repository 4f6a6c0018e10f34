"""Translates traced calls that documents express differently: conversions, creations, draws, statistics, sizes."""

import operator
from typing import Any, Final

import torch
from torch import fx

from graphdoc.document.encode import Operation, Same, build_plain_operation, schema_arguments
from graphdoc.document.kernels import batch_norm_training
from graphdoc.document.refusals import build_document_refusal, operator_name
from graphdoc.document.rephrased_draws import (
    _ATTENTION,
    Rule,
    Said,
    bernoulli_p,
    build_dropout_rule,
    rephrase_attention,
    rephrase_bernoulli,
    rephrase_normal,
    rephrase_uniform,
    tensor_of,
)


def build_operation(node: fx.Node, site: int) -> Said:
    """Returns the document's operation for a traced call. Raises DocumentRefused where there is none."""
    if node.target in _FUNCTIONS:
        return Operation(
            _FUNCTIONS[node.target], tuple(node.args), (0, 1, 2) if node.target is batch_norm_training else (0,)
        )
    rule = _RULES.get(operator_name(node))
    return build_plain_operation(node) if rule is None else rule(node, schema_arguments(node), site)


def is_rephrased(node: fx.Node) -> bool:
    """Returns whether a traced call is expressed by another operator than itself."""
    return operator_name(node) in _RULES


def _rephrase_conversion(node: fx.Node, source: fx.Node, copy: Any, memory: Any) -> Said:
    """Converts to the element type of the result; devices are dropped, since a run has its own."""
    dtype = tensor_of(node).dtype
    keeps_order = memory in (None, torch.preserve_format)
    if dtype == tensor_of(source).dtype and keeps_order:
        return Same(source)
    return Operation("to.dtype", (source, dtype, False, bool(copy), None if keeps_order else memory))


def _rephrase_to(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    """Takes (tensor, …, copy, memory format), of any overload."""
    return _rephrase_conversion(node, arguments[0], *arguments[-2:])


def _build_full_rule(value: float | int | None, place: int) -> Rule:
    """Returns the rule for a tensor filled with a number; its shape is the argument at `place`.

    Where `value` is None, the number is the next argument.
    """

    def rule(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
        number = arguments[place + 1] if value is None else value
        return Operation("creation.full", (arguments[place], _convert_number(number, node), tensor_of(node).dtype))

    return rule


def _full_like(value: float | int | None) -> Rule:
    def rule(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
        number = arguments[1] if value is None else value
        typed = (_convert_number(number, node), tensor_of(node).dtype)
        return Operation("full_like.default", (arguments[0], *typed, None, None, None, arguments[-1]))

    return rule


def _convert_number(number: Any, node: fx.Node) -> Any:
    """Returns a constant as float or int, by the result's type."""
    if isinstance(number, fx.Node):
        return number
    return float(number) if tensor_of(node).is_floating_point() else int(number)


def _build_arange_rule(start: int | None, end: int, step: int | None) -> Rule:
    """Returns the rule for arange; `start`, `end` and `step` are positions among the arguments."""

    def rule(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
        low, by = (default if place is None else arguments[place] for place, default in ((start, 0), (step, 1)))
        return Operation("creation.arange", (low, arguments[end], by, tensor_of(node).dtype))

    return rule


def _rephrase_eye(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    width = arguments[0] if operator_name(node) == "eye.default" else arguments[1]
    return Operation("creation.eye", (arguments[0], width, tensor_of(node).dtype))


def _rephrase_view(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    """Reshapes a result that attention gave in another order: that order in memory depends on the kernel and device.

    The trace drops a copy that its own kernel makes needless; such a view would hold for that kernel alone.
    """
    moved, source = False, node.args[0]
    while isinstance(source, fx.Node) and operator_name(source) in (*_MOVES, "view.default"):
        moved, source = moved or operator_name(source) in _MOVES, source.args[0]
    attends = moved and isinstance(source, fx.Node) and operator_name(source) == _ATTENTION
    return Operation("reshape.default" if attends else "view.default", arguments)


def _batch_norm(_node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    tensor, weight, bias, mean, variance, training, momentum, eps, *_ = arguments
    if training:
        return Operation("batch_norm.batch", (tensor, weight, bias, eps))
    return Operation("batch_norm.evaluation", (tensor, weight, bias, mean, variance, momentum, eps))


def _native_batch_norm(_node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    *tensors, training, momentum, eps = arguments
    if not training:
        return Operation("batch_norm.evaluation", (*tensors, momentum, eps))
    return Operation("batch_norm.training", (*tensors, momentum, eps), (0, 3, 4))


def _rephrase_recurrent(node: fx.Node, arguments: tuple[Any, ...], _site: int) -> Said:
    """Refuses dropout between the layers of one operator, which is not equal on every device."""
    layers, dropout, training = arguments[4:7]
    if dropout and training and layers > 1:
        raise build_document_refusal(node, "drops out between its layers")
    results = tuple(range(3 if operator_name(node) == "lstm.input" else 2))
    return Operation(operator_name(node), (*arguments[:5], 0.0, *arguments[6:]), results)


_FUNCTIONS: Final[dict[Any, str]] = {
    operator.add: "integer.add",
    operator.sub: "integer.sub",
    operator.mul: "integer.mul",
    operator.floordiv: "integer.floordiv",
    operator.mod: "integer.mod",
    operator.neg: "integer.neg",
    torch.sym_max: "integer.max",
    torch.sym_min: "integer.min",
    batch_norm_training: "batch_norm.training",
}

_MOVES: Final = ("transpose.int", "permute.default", "swapaxes.default", "movedim.int", "movedim.intlist")
_RULES: Final[dict[str, Rule]] = {
    "view.default": _rephrase_view,
    "to.dtype": _rephrase_to,
    "to.device": _rephrase_to,
    "to.dtype_layout": _rephrase_to,
    "_to_copy.default": lambda node, arguments, _: _rephrase_conversion(node, arguments[0], True, arguments[-1]),
    "type_as.default": lambda node, arguments, _: _rephrase_conversion(node, arguments[0], False, None),
    "lift_fresh_copy.default": lambda _node, arguments, _: Same(arguments[0]),
    "full.default": _build_full_rule(None, 0),
    "zeros.default": _build_full_rule(0, 0),
    "ones.default": _build_full_rule(1, 0),
    "new_full.default": _build_full_rule(None, 1),
    "new_zeros.default": _build_full_rule(0, 1),
    "new_ones.default": _build_full_rule(1, 1),
    "full_like.default": _full_like(None),
    "zeros_like.default": _full_like(0),
    "ones_like.default": _full_like(1),
    "zero.default": lambda node, arguments, _: Operation(
        "full_like.default", (arguments[0], 0.0, tensor_of(node).dtype, None, None, None, None)
    ),
    "scalar_tensor.default": lambda node, arguments, _: Operation(
        "creation.full", ((), _convert_number(arguments[0], node), tensor_of(node).dtype)
    ),
    "arange.default": _build_arange_rule(None, 0, None),
    "arange.start": _build_arange_rule(0, 1, None),
    "arange.start_step": _build_arange_rule(0, 1, 2),
    "linspace.default": lambda node, arguments, _: Operation(
        "creation.linspace", (*arguments[:3], tensor_of(node).dtype)
    ),
    "eye.default": _rephrase_eye,
    "eye.m": _rephrase_eye,
    # by our own operator, since ATen's functional copy has no derivative
    "copy.default": lambda _node, arguments, _: Operation("copy.broadcast", arguments[:2]),
    "sym_size.int": lambda _node, arguments, _: Operation("integer.size", arguments),
    "batch_norm.default": _batch_norm,
    "_native_batch_norm_legit_functional.default": _native_batch_norm,
    "_native_batch_norm_legit_no_training.default": lambda _node, arguments, _: Operation(
        "batch_norm.evaluation", arguments
    ),
    "dropout.default": build_dropout_rule("dropout.hash"),
    "native_dropout.default": build_dropout_rule("dropout.hash"),
    "feature_dropout.default": build_dropout_rule("dropout.feature"),
    "alpha_dropout.default": build_dropout_rule("dropout.alpha"),
    _ATTENTION: rephrase_attention,
    "rand_like.default": rephrase_uniform,
    "randn_like.default": rephrase_normal,
    "bernoulli.default": rephrase_bernoulli,
    "bernoulli.p": bernoulli_p,
    **dict.fromkeys(("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"), _rephrase_recurrent),
}
