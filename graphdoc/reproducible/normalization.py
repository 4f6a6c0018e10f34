"""Normalisations and their gradients, from exact sums: mean and 1 / sqrt(variance + eps) are rounded to float32."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphdoc.reproducible.exact import sum_exactly
from graphdoc.reproducible.functions import compute_function

Three = tuple[Tensor | None, Tensor | None, Tensor | None]


def _mean(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    total = sum_exactly(tensor, dims, True)
    return (total / (tensor.numel() / max(1, total.numel()))).to(tensor.dtype)


def _sum(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    return sum_exactly(tensor, dims).to(tensor.dtype) if dims else tensor


def _standardize(tensor: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (standardized, mean, reciprocal deviation) along `dims`."""
    mean = _mean(tensor, dims)
    apart = tensor - mean
    scale = 1.0 / compute_function("sqrt", _mean(apart * apart, dims) + eps)
    return apart * scale, mean, scale


def _standardize_back(gradient: Tensor, standard: Tensor, scale: Tensor, dims: Sequence[int]) -> Tensor:
    """Returns the gradient of the input of the standardization."""
    along = gradient - _mean(gradient, dims) - standard * _mean(gradient * standard, dims)
    return along * scale


def layer_norm(
    tensor: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, scale = _standardize(tensor, range(-len(shape), 0), eps)
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias), mean, scale


def layer_norm_back(
    gradient: Tensor,
    tensor: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    _bias: Tensor | None,
    wanted: Sequence[bool],
) -> Three:
    dims, rows = range(-len(shape), 0), range(tensor.dim() - len(shape))
    standard = (tensor - mean) * scale
    inner = gradient if weight is None else gradient * weight
    by_input = _standardize_back(inner, standard, scale, dims) if wanted[0] else None
    by_weight = _sum(gradient * standard, rows) if wanted[1] else None
    return by_input, by_weight, _sum(gradient, rows) if wanted[2] else None


def rms_norm(tensor: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    small = torch.finfo(tensor.dtype).eps if eps is None else eps
    scale = 1.0 / compute_function("sqrt", _mean(tensor * tensor, range(-len(shape), 0)) + small)
    result = tensor * scale
    return (result if weight is None else result * weight), scale


def rms_norm_back(
    gradient: Tensor,
    tensor: Tensor,
    shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    dims, rows = range(-len(shape), 0), range(tensor.dim() - len(shape))
    standard = tensor * scale
    inner = gradient if weight is None else gradient * weight
    by_input = (inner - standard * _mean(inner * standard, dims)) * scale if wanted[0] else None
    return by_input, _sum(gradient * standard, rows) if wanted[1] else None


def group_norm(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rows: int,
    channels: int,
    _places: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grouped, mean, scale = _standardize(tensor.reshape(rows, groups, -1), (2,), eps)
    by_channel = (1, channels, *[1] * (tensor.dim() - 2))
    result = grouped.view(tensor.shape)
    result = result if weight is None else result * weight.view(by_channel)
    result = result if bias is None else result + bias.view(by_channel)
    return result, mean.view(rows, groups), scale.view(rows, groups)


def group_norm_back(
    gradient: Tensor,
    tensor: Tensor,
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    rows: int,
    channels: int,
    _places: int,
    groups: int,
    wanted: Sequence[bool],
) -> Three:
    shape, dims = (rows, groups, -1), (0, *range(2, tensor.dim()))
    by_channel = (1, channels, *[1] * (tensor.dim() - 2))
    scale = scale.unsqueeze(-1)
    standard = (tensor.reshape(shape) - mean.unsqueeze(-1)) * scale
    inner = gradient if weight is None else gradient * weight.view(by_channel)
    by_input = _standardize_back(inner.reshape(shape), standard, scale, (2,)).view(tensor.shape) if wanted[0] else None
    by_weight = _sum(gradient * standard.view(tensor.shape), dims) if wanted[1] else None
    return by_input, by_weight, _sum(gradient, dims) if wanted[2] else None


def batch_norm(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Any,
    running_variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises by channel; in training it moves the running statistics, which it writes in place."""
    dims = (0, *range(2, tensor.dim()))
    by_channel = (1, -1, *[1] * (tensor.dim() - 2))
    mean = scale = tensor.new_empty(0)
    if training:
        result, centre, spread = _standardize(tensor, dims, eps)
        mean, scale = centre.reshape(-1), spread.reshape(-1)
        if running_mean is not None and running_variance is not None:
            apart, count = tensor - centre, tensor.numel() / tensor.shape[1]
            variance = (sum_exactly(apart * apart, dims) / (count - 1 if count > 1 else math.nan)).to(tensor.dtype)
            running_mean.copy_(running_mean * (1.0 - momentum) + mean * momentum)
            running_variance.copy_(running_variance * (1.0 - momentum) + variance * momentum)
    else:
        spread = 1.0 / compute_function("sqrt", running_variance + eps)
        result = (tensor - running_mean.view(by_channel)) * spread.view(by_channel)
    result = result if weight is None else result * weight.view(by_channel)
    return (result if bias is None else result + bias.view(by_channel)), mean, scale


def batch_norm_back(
    gradient: Tensor,
    tensor: Tensor,
    weight: Tensor | None,
    running_mean: Any,
    running_variance: Any,
    mean: Any,
    scale: Any,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
    *_: Any,
) -> Three:
    dims = (0, *range(2, tensor.dim()))
    by_channel = (1, -1, *[1] * (tensor.dim() - 2))
    if not training:
        mean, scale = running_mean, 1.0 / compute_function("sqrt", running_variance + eps)
    spread = scale.view(by_channel)
    standard = (tensor - mean.view(by_channel)) * spread
    inner = gradient if weight is None else gradient * weight.view(by_channel)
    by_input = (_standardize_back(inner, standard, spread, dims) if training else inner * spread) if wanted[0] else None
    by_weight = _sum(gradient * standard, dims) if wanted[1] else None
    return by_input, by_weight, _sum(gradient, dims) if wanted[2] else None
