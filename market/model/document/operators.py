"""What each key of the allow-list does and what it costs. A new operator is one line here and one in signatures.py."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from gradmarket.market.model.document import costs
from gradmarket.market.model.document.dropout import hash_dropout
from gradmarket.market.model.document.signatures import ATEN, OWN, SIGNATURES, Signature

SEEDED: Final = ("dropout.hash",)
"""Operators that take the microbatch's seed as well."""


@dataclass(frozen=True)
class Operator:
    """`call` takes the arguments in the signature's order, but for those of `keywords`, which go by name."""

    call: Callable[..., Any]
    keywords: Mapping[int, str]
    signature: Signature
    cost: costs.Cost


def batch_norm_training(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised by the batch's statistics, new running mean, new running variance); what came in stays as it is."""
    mean, variance = mean.clone(), variance.clone()
    result = torch.batch_norm(tensor, weight, bias, mean, variance, True, momentum, eps, torch.backends.cudnn.enabled)
    return result, mean, variance


def batch_norm_evaluation(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalised by the running statistics, which do not change."""
    return torch.batch_norm(tensor, weight, bias, mean, variance, False, momentum, eps, torch.backends.cudnn.enabled)


def copy_broadcast(tensor: Tensor, source: Tensor) -> Tensor:
    """`source` in the shape and element type of `tensor`: what is there after tensor[...] = source."""
    return source.to(tensor.dtype).expand(tensor.shape).clone(memory_format=torch.contiguous_format)


def integer_size(tensor: Tensor, dimension: int) -> int:
    return int(tensor.shape[dimension])


VIEWS: Final = ("view", "_unsafe_view", "transpose", "permute", "t", "unsqueeze", "squeeze", "alias", "detach")
TRANSCENDENTALS: Final = (
    *("gelu", "silu", "tanh", "sigmoid", "elu", "softplus", "softmax", "log_softmax", "exp", "log", "sqrt", "rsqrt"),
    *("pow", "layer_norm", "group_norm", "batch_norm", "cross_entropy_loss", "binary_cross_entropy_with_logits"),
)
COSTS: Final[dict[str, costs.Cost]] = {
    **dict.fromkeys(VIEWS, costs.free),
    **dict.fromkeys(TRANSCENDENTALS, costs.transcendental),
    **dict.fromkeys(("linear", "matmul", "mm", "bmm"), costs.contraction),
    **dict.fromkeys(("conv1d", "conv2d"), costs.convolution),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), costs.pooling),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d"), costs.adaptive_pooling),
    "addmm": costs.added_contraction,
    "integer": costs.free,
    "dropout": costs.transcendental,
}
"""By the name before the dot; every other operator costs its elements."""

OWN_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "batch_norm.training": batch_norm_training,
    "batch_norm.evaluation": batch_norm_evaluation,
    "copy.broadcast": copy_broadcast,
    "dropout.hash": hash_dropout,
    "integer.size": integer_size,
    "integer.add": operator.add,
    "integer.sub": operator.sub,
    "integer.mul": operator.mul,
    "integer.floordiv": operator.floordiv,
}


def _aten(name: str) -> torch._ops.OpOverload:
    """The ATen operator of a key that stands in our own table."""
    packet, overload = name.split(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload)
    return found


def _operator(name: str) -> Operator:
    cost = COSTS.get(name.split(".")[0], costs.elements)
    if name in OWN:
        return Operator(OWN_CALLS[name], {}, SIGNATURES[name], cost)
    call = _aten(name)
    keywords = {place: entry.name for place, entry in enumerate(call._schema.arguments) if entry.kwarg_only}
    return Operator(call, keywords, SIGNATURES[name], cost)


OPERATORS: Final = {name: _operator(name) for name in ATEN | OWN}
"""The allow-list, ready to call: a document's `op` is looked up here and nowhere else."""
