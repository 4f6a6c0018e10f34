"""Operators that draw at random, listed in `draws`, rewritten as draws of the document."""

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor, fx

from graphdoc.document.encode import Operation, Same, schema_arguments
from graphdoc.document.refusals import build_document_refusal, operator_name

_ATTENTION: Final = "scaled_dot_product_attention.default"


Said = Operation | Same


Rule = Callable[[fx.Node, tuple[Any, ...], int], Said]
"""Maps (node, its arguments by the ATen schema, the number of its draw) to the document's operation."""


def is_drawing(node: fx.Node) -> bool:
    """Returns whether a traced call draws: in training, and with a probability that is not zero."""
    place = _PROBABILITIES.get(operator_name(node))
    if place is None:
        return operator_name(node) in _ALWAYS_DRAW
    arguments = schema_arguments(node)
    trained = operator_name(node) == _ATTENTION or arguments[place + 1] is not False
    return bool(arguments[place]) and trained


def tensor_of(node: Any) -> Tensor:
    tensor: Tensor = node.meta["val"]
    return tensor


def build_dropout_rule(key: str) -> Rule:
    def rule(node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
        tensor, probability, _ = arguments
        if not is_drawing(node):
            return Same(tensor)
        return Operation(key, (tensor, _check_probability(node, probability), site))

    return rule


def _check_probability(node: fx.Node, probability: float) -> float:
    if not 0.0 <= probability < 1.0:
        raise build_document_refusal(node, f"has the probability {probability}, which is not in [0, 1)")
    return probability


def rephrase_attention(node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
    if not is_drawing(node):
        return Operation(_ATTENTION, arguments)
    _check_probability(node, arguments[4])
    return Operation("attention.dropout", (*arguments, site))


def rephrase_uniform(node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
    return Operation("chance.uniform", (arguments[0], tensor_of(node).dtype, site))


def rephrase_normal(node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
    return Operation("chance.normal", (arguments[0], tensor_of(node).dtype, site))


def rephrase_bernoulli(_node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
    return Operation("chance.bernoulli", (arguments[0], arguments[0], site))


def bernoulli_p(_node: fx.Node, arguments: tuple[Any, ...], site: int) -> Said:
    return Operation("chance.bernoulli", (arguments[0], float(arguments[1]), site))


_PROBABILITIES: Final = {
    **dict.fromkeys(("dropout.default", "native_dropout.default"), 1),
    **dict.fromkeys(("feature_dropout.default", "alpha_dropout.default"), 1),
    _ATTENTION: 4,
}
"""Position of the probability among the arguments."""


_ALWAYS_DRAW: Final = ("rand_like.default", "randn_like.default", "bernoulli.default", "bernoulli.p")
