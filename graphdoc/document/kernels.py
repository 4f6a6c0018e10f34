"""The operators of our own. Each is a pure function that leaves its arguments unchanged."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.document import randomness
from graphdoc.document.arguments import INTEGER_LIMIT
from graphdoc.errors import DocumentRefused


def batch_norm_training(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (normalised by the batch's statistics, new running mean, new running variance)."""
    mean, variance = mean.clone(), variance.clone()
    result = torch.batch_norm(tensor, weight, bias, mean, variance, True, momentum, eps, torch.backends.cudnn.enabled)
    return result, mean, variance


def batch_norm_batch(tensor: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Returns the tensor normalised by the batch's statistics, without running ones."""
    return torch.batch_norm(tensor, weight, bias, None, None, True, 0.0, eps, torch.backends.cudnn.enabled)


def batch_norm_evaluation(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    """Returns the tensor normalised by the running statistics, which do not change."""
    return torch.batch_norm(tensor, weight, bias, mean, variance, False, momentum, eps, torch.backends.cudnn.enabled)


def attention_dropout(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    probability: float,
    causal: bool,
    scale: float | None,
    shared: bool,
    site: int,
    seed: randomness.Seed,
) -> Tensor:
    """Computes attention with dropout of its weights, in the order of torch's own unfused kernel.

    16-bit floats are computed in float32. `mask` is added; a bool mask is true where a score counts. With `shared`,
    several heads use one key and value.
    """
    dtype = query.dtype
    if dtype in (torch.bfloat16, torch.float16):
        query, key, value = query.float(), key.float(), value.float()
    if shared:
        heads = query.shape[-3]
        key = key.repeat_interleave(heads // key.shape[-3], -3)
        value = value.repeat_interleave(heads // value.shape[-3], -3)
    factor = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = (query * factor).matmul((key * factor).transpose(-2, -1))
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        added = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device)
        mask = added.masked_fill(mask.logical_not(), -math.inf)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, -1) if mask is None else torch._safe_softmax(scores, -1)
    return randomness.hash_dropout(weights, probability, site, seed).matmul(value).to(dtype)


def copy_broadcast(tensor: Tensor, source: Tensor) -> Tensor:
    """Returns `source` in the shape and element type of `tensor`: the result of tensor[...] = source."""
    return source.to(tensor.dtype).expand(tensor.shape).clone(memory_format=torch.contiguous_format)


def full(shape: Sequence[int], value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


def arange(start: float, end: float, step: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(start, end, step, dtype=dtype, device=device)


def linspace(start: float, end: float, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.linspace(start, end, steps, dtype=dtype, device=device)


def eye(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.eye(height, width, dtype=dtype, device=device)


def integer_size(tensor: Tensor, dimension: int) -> int:
    return int(tensor.shape[dimension])


def compute_limited_integer(function: Callable[..., int], *arguments: int) -> int:
    """Returns the function's value. Raises DocumentRefused beyond INTEGER_LIMIT."""
    result = function(*arguments)
    if abs(result) > INTEGER_LIMIT:
        raise DocumentRefused(f"an integer beyond {INTEGER_LIMIT}")
    return result


KERNELS: Final[dict[str, Callable[..., Any]]] = {
    "batch_norm.training": batch_norm_training,
    "batch_norm.batch": batch_norm_batch,
    "batch_norm.evaluation": batch_norm_evaluation,
    "attention.dropout": attention_dropout,
    "dropout.hash": randomness.hash_dropout,
    "dropout.feature": randomness.feature_dropout,
    "dropout.alpha": randomness.alpha_dropout,
    "chance.uniform": randomness.draw_uniform,
    "chance.normal": randomness.draw_normal,
    "chance.bernoulli": randomness.draw_bernoulli,
    "creation.full": full,
    "creation.arange": arange,
    "creation.linspace": linspace,
    "creation.eye": eye,
    "copy.broadcast": copy_broadcast,
    "integer.size": integer_size,
    "integer.add": partial(compute_limited_integer, operator.add),
    "integer.sub": partial(compute_limited_integer, operator.sub),
    "integer.mul": partial(compute_limited_integer, operator.mul),
    "integer.floordiv": partial(compute_limited_integer, operator.floordiv),
    "integer.mod": partial(compute_limited_integer, operator.mod),
    "integer.neg": partial(compute_limited_integer, operator.neg),
    "integer.max": partial(compute_limited_integer, max),
    "integer.min": partial(compute_limited_integer, min),
}
