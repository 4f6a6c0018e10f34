"""The reproducible kernel of each ATen operator that rounds more than once.

Keys are names of ATen without the overload; arguments are in the schema's order. Formulas are those of torch's own
kernels (aten/src/ATen/native, tools/autograd/derivatives.yaml), every operation of them rounded to float32.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from graphdoc.errors import DocumentRefused
from graphdoc.reproducible import exact_products, normalization
from graphdoc.reproducible.exact import round_terms, sum_exactly
from graphdoc.reproducible.functions import compute_function, compute_in_blocks

_MEAN, _SUM = 1, 2
"""Values of a loss's `reduction`."""


def sum_rounded(tensor: Tensor, dims: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if not tensor.is_floating_point() and not (dtype is not None and dtype.is_floating_point):
        return torch.sum(tensor, dims, keepdim, dtype=dtype) if dims else torch.sum(tensor, dtype=dtype)
    return sum_exactly(tensor, _dims(dims), keepdim).to(dtype or tensor.dtype)


def mean(tensor: Tensor, dims: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the exact sum divided by the number of terms in float64."""
    total = sum_exactly(tensor, _dims(dims), keepdim)
    return (total / (tensor.numel() / max(1, total.numel()))).to(dtype or tensor.dtype)


def _dims(dims: Any) -> Sequence[int] | None:
    return (dims,) if isinstance(dims, int) else dims


def variance(tensor: Tensor, dims: Any = None, *, correction: float | None = 1, keepdim: bool = False) -> Tensor:
    centre = mean(tensor, dims, True)
    apart = tensor - centre
    total = sum_exactly(apart * apart, _dims(dims), keepdim)
    count = tensor.numel() / max(1, total.numel()) - (1 if correction is None else correction)
    return (total / max(0.0, count)).to(tensor.dtype)


def deviation(tensor: Tensor, dims: Any = None, *, correction: float | None = 1, keepdim: bool = False) -> Tensor:
    return compute_function("sqrt", variance(tensor, dims, correction=correction, keepdim=keepdim))


def variance_and_mean(
    tensor: Tensor, dims: Any = None, *, correction: float | None = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return variance(tensor, dims, correction=correction, keepdim=keepdim), mean(tensor, dims, keepdim)


def euclidean_norm(tensor: Tensor, order: float = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    if order != 2:
        raise DocumentRefused(f"a norm of order {order} has no reproducible kernel")
    return compute_function("sqrt", sum_exactly(tensor * tensor, _dims(dims), keepdim).to(tensor.dtype))


def largest(tensor: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    """Returns the maximum; adding 0 leaves no sign of a zero, which depends on the order."""
    return tensor.amax(tuple(dims), keepdim) + 0.0


def smallest(tensor: Tensor, dims: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    return tensor.amin(tuple(dims), keepdim) + 0.0


def greater(one: Tensor, other: Tensor) -> Tensor:
    return torch.where((one >= other) | (one != one), one, other)


def lesser(one: Tensor, other: Tensor) -> Tensor:
    return torch.where((one <= other) | (one != one), one, other)


def clamp(tensor: Tensor, low: Any = None, high: Any = None) -> Tensor:
    if low is not None:
        tensor = torch.where(tensor < low, low, tensor)
    return tensor if high is None else torch.where(tensor > high, high, tensor)


def add_scaled(one: Any, other: Any, *, alpha: float = 1) -> Tensor:
    return torch.add(one, other if alpha == 1 else other * alpha)


def subtract_scaled(one: Any, other: Any, *, alpha: float = 1) -> Tensor:
    return torch.sub(one, other if alpha == 1 else other * alpha)


def subtract_from(one: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return torch.add(-(one if alpha == 1 else one * alpha), other)


def divide(one: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return torch.div(one, other)
    if one.is_floating_point() or (isinstance(other, Tensor) and other.is_floating_point()):
        raise DocumentRefused("a rounded quotient of floats has no reproducible kernel")
    quotient: Tensor = torch.div(one, other, rounding_mode=rounding_mode)
    return quotient


def move_between(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    moved: Tensor = start + (end - start) * weight
    return moved


def power(base: Any, exponent: Any) -> Tensor:
    """Whole exponents up to 4 by products, halves by square roots, others correctly rounded."""
    if not isinstance(base, Tensor):
        base = torch.full_like(exponent, base)
    if isinstance(exponent, Tensor):
        base, exponent = torch.ops.aten.broadcast_tensors([base, exponent])
        return compute_function("pow", base, exponent)
    whole = _POWERS.get(float(exponent))
    if whole is not None:
        return whole(base)
    return compute_function("pow", base, torch.full_like(base, exponent))


_POWERS: Final[Mapping[float, Callable[[Tensor], Tensor]]] = {
    0.0: torch.ones_like,
    1.0: torch.clone,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
    -1.0: lambda x: 1.0 / x,
    -2.0: lambda x: 1.0 / (x * x),
    0.5: partial(compute_function, "sqrt"),
    -0.5: lambda x: 1.0 / compute_function("sqrt", x),
    1.5: lambda x: x * compute_function("sqrt", x),
    -1.5: lambda x: 1.0 / (x * compute_function("sqrt", x)),
}


def _soften(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the differences to the largest, their exponentials, and the exponentials' sums."""
    if tensor.dim() == 0:
        tensor = tensor.unsqueeze(0)
    below = tensor - largest(tensor, (dim,), True)
    exponentials = compute_function("exp", below)
    return below, exponentials, sum_exactly(exponentials, (dim,), True).to(tensor.dtype)


def softmax(tensor: Tensor, dim: int, *_: Any) -> Tensor:
    exponentials, total = _soften(tensor, dim)[1:]
    return (exponentials / total).view(tensor.shape)


def safe_softmax(tensor: Tensor, dim: int, *_: Any) -> Tensor:
    """Returns zeros where every element is -inf."""
    return torch.where((tensor == -math.inf).all(dim, keepdim=True), 0.0, softmax(tensor, dim))


def softmax_back(gradient: Tensor, result: Tensor, dim: int, _dtype: Any) -> Tensor:
    weighed = gradient * result
    return weighed - result * sum_exactly(weighed, (dim,), True).to(result.dtype)


def log_softmax(tensor: Tensor, dim: int, *_: Any) -> Tensor:
    below, total = _soften(tensor, dim)[::2]
    return (below - compute_function("log", total)).view(tensor.shape)


def log_softmax_back(gradient: Tensor, result: Tensor, dim: int, _dtype: Any) -> Tensor:
    total = sum_exactly(gradient, (dim,), True).to(result.dtype)
    return gradient - compute_function("exp", result) * total


def logsumexp(tensor: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    top = largest(tensor, dims, True)
    top = torch.where(top.abs() == math.inf, 0.0, top)
    total = sum_exactly(compute_function("exp", tensor - top), dims, True).to(tensor.dtype)
    result = compute_function("log", total) + top
    return result if keepdim else result.squeeze(tuple(dims))


_ROOT_HALF: Final = math.sqrt(0.5)
_ROOT_TWO_OVER_PI: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715


def gelu(tensor: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "none":
        return compute_in_blocks(lambda part: part * 0.5 * (compute_function("erf", part * _ROOT_HALF) + 1.0), tensor)
    return compute_in_blocks(lambda part: part * 0.5 * (_gelu_tangent(part) + 1.0), tensor)


def _gelu_tangent(tensor: Tensor) -> Tensor:
    return compute_function("tanh", (tensor + tensor * tensor * tensor * _CUBIC) * _ROOT_TWO_OVER_PI)


def gelu_back(gradient: Tensor, tensor: Tensor, *, approximate: str = "none") -> Tensor:
    return compute_in_blocks(_gelu_back_by_erf if approximate == "none" else _gelu_back_by_tangent, gradient, tensor)


def _gelu_back_by_erf(gradient: Tensor, tensor: Tensor) -> Tensor:
    below = (compute_function("erf", tensor * _ROOT_HALF) + 1.0) * 0.5
    density = compute_function("exp", tensor * tensor * -0.5) * (0.5 * _ROOT_TWO_OVER_PI)
    return gradient * (below + tensor * density)


def _gelu_back_by_tangent(gradient: Tensor, tensor: Tensor) -> Tensor:
    tangent = _gelu_tangent(tensor)
    inner = (tensor * tensor * (3 * _CUBIC) + 1.0) * _ROOT_TWO_OVER_PI
    return gradient * ((tangent + 1.0) * 0.5 + tensor * 0.5 * (1.0 - tangent * tangent) * inner)


def silu(tensor: Tensor) -> Tensor:
    return compute_in_blocks(lambda part: part * compute_function("sigmoid", part), tensor)


def silu_back(gradient: Tensor, tensor: Tensor) -> Tensor:
    return compute_in_blocks(_silu_back, gradient, tensor)


def _silu_back(gradient: Tensor, tensor: Tensor) -> Tensor:
    share = compute_function("sigmoid", tensor)
    return gradient * (share * (tensor * (1.0 - share) + 1.0))


def log_sigmoid(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns min(x, 0) - log1p(exp(-|x|)), and the empty buffer of the CUDA kernel."""
    return clamp(tensor, None, 0.0) - _soft_corner(tensor), tensor.new_empty(0)


def _soft_corner(tensor: Tensor) -> Tensor:
    return compute_function("log1p", compute_function("exp", -tensor.abs()))


def log_sigmoid_back(gradient: Tensor, tensor: Tensor, _buffer: Tensor) -> Tensor:
    return gradient * compute_function("sigmoid", -tensor)


def softplus(tensor: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = tensor * beta
    return torch.where(scaled > threshold, tensor, (clamp(scaled, 0.0) + _soft_corner(scaled)) / beta)


def softplus_back(gradient: Tensor, tensor: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = tensor * beta
    return torch.where(scaled > threshold, gradient, gradient * compute_function("sigmoid", scaled))


def threshold_back(gradient: Tensor, tensor: Tensor, threshold: float) -> Tensor:
    return torch.where(tensor <= threshold, 0.0, gradient)


def leaky_relu(tensor: Tensor, slope: float = 0.01) -> Tensor:
    return torch.where(tensor > 0, tensor, tensor * slope)


def leaky_relu_back(gradient: Tensor, tensor: Tensor, slope: float, _is_result: bool) -> Tensor:
    return torch.where(tensor > 0, gradient, gradient * slope)


def hardtanh_back(gradient: Tensor, tensor: Tensor, low: float, high: float) -> Tensor:
    return torch.where((tensor <= low) | (tensor >= high), 0.0, gradient)


def elu(tensor: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    low = compute_function("expm1", clamp(tensor, None, 0.0) * input_scale) * (alpha * scale)
    return torch.where(tensor > 0, tensor * scale, low)


def elu_back(
    gradient: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, given: Tensor
) -> Tensor:
    slope = (
        (given + alpha * scale) * input_scale
        if is_result
        else compute_function("exp", clamp(given, None, 0.0) * input_scale) * (input_scale * alpha * scale)
    )
    return gradient * torch.where(given > 0, scale, slope)


def embedding_back(gradient: Tensor, indices: Tensor, count: int, padding: int, by_frequency: bool) -> Tensor:
    """Returns exact sums of the gradients of each entry's uses."""
    if by_frequency:
        raise DocumentRefused("an embedding scaled by frequency has no reproducible kernel")
    flat, width = indices.reshape(-1), gradient.shape[-1]
    kept = torch.where((flat == padding).unsqueeze(-1), 0.0, gradient.reshape(-1, width))
    return add_at(kept.new_zeros(count, width), 0, flat, kept)


def add_at(tensor: Tensor, dim: int, indices: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Returns the tensor plus the exact sums of the source's slices at each index (index_add)."""
    source = source if alpha == 1 else source * alpha
    return tensor + _gather_sums(tensor, source, lambda zeros, grid: zeros.index_add_(dim, indices, grid))


def scatter_at(tensor: Tensor, dim: int, indices: Tensor, source: Tensor) -> Tensor:
    """Returns the tensor plus the exact sums of the source's elements at each index (scatter_add)."""
    return tensor + _gather_sums(tensor, source, lambda zeros, grid: zeros.scatter_add_(dim, indices, grid))


def put_at(
    tensor: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Tensor:
    put = torch.ops.aten.index_put
    if not (accumulate and values.is_floating_point()):
        replaced: Tensor = put(tensor, indices, values, accumulate)
        return replaced
    return tensor + _gather_sums(tensor, values, lambda zeros, grid: put(zeros, indices, grid, True))


def _gather_sums(like: Tensor, source: Tensor, add: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the sums that `add` forms in float64 zeros of the source, rounded to one grid."""
    zeros = like.new_zeros(like.shape, dtype=torch.float64)
    if not source.numel():
        return zeros.to(like.dtype)
    grid = round_terms(source, tuple(range(source.dim())), source.numel())
    return add(zeros, grid).to(like.dtype)


def pool_back(gradient: Tensor, tensor: Tensor, *rest: Any) -> Tensor:
    """Returns the gradient of max_pool2d's input: exact sums over the windows that chose a place."""
    zeros = torch.zeros_like(tensor).flatten(-2)
    return scatter_at(zeros, -1, rest[-1].flatten(-2), gradient.flatten(-2)).view(tensor.shape)


def nll_loss(
    tensor: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Returns the loss and the sum of the weights; classes are in dimension 1, or 0 of one row."""
    dim = min(1, tensor.dim() - 1)
    counted = target != ignored
    place = torch.where(counted, target, 0)
    shares = torch.where(counted, 1.0 if weight is None else weight[place], 0.0).to(tensor.dtype)
    each = torch.where(counted, -tensor.gather(dim, place.unsqueeze(dim)).squeeze(dim) * shares, 0.0)
    whole = sum_exactly(shares).to(tensor.dtype)
    if reduction == 0:
        return each, whole.new_zeros(())
    total = sum_exactly(each).to(tensor.dtype)
    return (total / whole if reduction == _MEAN else total), whole


def nll_loss_back(
    gradient: Tensor,
    tensor: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignored: int,
    whole: Tensor,
) -> Tensor:
    dim = min(1, tensor.dim() - 1)
    counted = target != ignored
    place = torch.where(counted, target, 0)
    shares = torch.where(counted, 1.0 if weight is None else weight[place], 0.0).to(tensor.dtype)
    each = torch.where(counted, -shares * (gradient / whole if reduction == _MEAN else gradient), 0.0)
    return torch.zeros_like(tensor).scatter_(dim, place.unsqueeze(dim), each.unsqueeze(dim))


def _reduce(each: Tensor, reduction: int) -> Tensor:
    if reduction == 0:
        return each
    return mean(each) if reduction == _MEAN else sum_rounded(each)


def squared_loss(tensor: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    apart = tensor - target
    return _reduce(apart * apart, reduction)


def squared_loss_back(gradient: Tensor, tensor: Tensor, target: Tensor, reduction: int) -> Tensor:
    scale = 2.0 / tensor.numel() if reduction == _MEAN else 2.0
    return (tensor - target) * scale * gradient


def logit_loss(
    tensor: Tensor, target: Tensor, weight: Tensor | None = None, positive: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """Returns binary_cross_entropy_with_logits: (1 - t) x + (1 + (w - 1) t) (log1p(exp(-|x|)) + max(-x, 0))."""
    corner = _soft_corner(tensor) + clamp(-tensor, 0.0)
    corner = corner if positive is None else ((positive - 1.0) * target + 1.0) * corner
    each = (1.0 - target) * tensor + corner
    return _reduce(each if weight is None else each * weight, reduction)


KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "mm": exact_products.multiply,
    "bmm": exact_products.multiply,
    "addmm": exact_products.add_product,
    "baddbmm": exact_products.add_product,
    "mv": exact_products.multiply_vector,
    "dot": exact_products.multiply_vectors,
    "convolution": exact_products.convolve,
    "convolution_backward": exact_products.convolve_back,
    "max_pool2d_with_indices_backward": pool_back,
    "avg_pool2d": exact_products.pool_mean,
    "avg_pool2d_backward": exact_products.pool_mean_back,
    "sum": sum_rounded,
    "mean": mean,
    "var": variance,
    "std": deviation,
    "var_mean": variance_and_mean,
    "linalg_vector_norm": euclidean_norm,
    "amax": largest,
    "amin": smallest,
    "maximum": greater,
    "minimum": lesser,
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": lambda tensor, high: clamp(tensor, None, high),
    "relu": lambda tensor: clamp(tensor, 0.0),
    "hardtanh": lambda tensor, low=-1.0, high=1.0: clamp(tensor, low, high),
    "hardtanh_backward": hardtanh_back,
    "threshold_backward": threshold_back,
    "leaky_relu": leaky_relu,
    "leaky_relu_backward": leaky_relu_back,
    "elu": elu,
    "elu_backward": elu_back,
    "add": add_scaled,
    "sub": subtract_scaled,
    "rsub": subtract_from,
    "div": divide,
    "reciprocal": lambda tensor: 1.0 / tensor,
    "rsqrt": lambda tensor: 1.0 / compute_function("sqrt", tensor),
    "addcmul": lambda tensor, one, other, *, value=1: tensor + one * other * value,
    "addcdiv": lambda tensor, one, other, *, value=1: tensor + one / other * value,
    "lerp": move_between,
    "pow": power,
    **{
        name: partial(compute_function, name)
        for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "erf", "erfc")
    },
    **{name: partial(compute_function, name) for name in ("sin", "cos", "sqrt")},
    "tanh_backward": lambda gradient, result: gradient * (1.0 - result * result),
    "sigmoid_backward": lambda gradient, result: gradient * ((1.0 - result) * result),
    "_softmax": softmax,
    "_safe_softmax": safe_softmax,
    "_softmax_backward_data": softmax_back,
    "_log_softmax": log_softmax,
    "_log_softmax_backward_data": log_softmax_back,
    "logsumexp": logsumexp,
    "gelu": gelu,
    "gelu_backward": gelu_back,
    "silu": silu,
    "silu_backward": silu_back,
    "log_sigmoid_forward": log_sigmoid,
    "log_sigmoid_backward": log_sigmoid_back,
    "softplus": softplus,
    "softplus_backward": softplus_back,
    "native_layer_norm": normalization.layer_norm,
    "native_layer_norm_backward": normalization.layer_norm_back,
    "_fused_rms_norm": normalization.rms_norm,
    "_fused_rms_norm_backward": normalization.rms_norm_back,
    "native_group_norm": normalization.group_norm,
    "native_group_norm_backward": normalization.group_norm_back,
    "native_batch_norm": normalization.batch_norm,
    "native_batch_norm_backward": normalization.batch_norm_back,
    "embedding_dense_backward": embedding_back,
    "index_add": add_at,
    "scatter_add": scatter_at,
    "index_put": put_at,
    "_index_put_impl": put_at,
    "nll_loss_forward": nll_loss,
    "nll_loss_backward": nll_loss_back,
    "nll_loss2d_forward": nll_loss,
    "nll_loss2d_backward": nll_loss_back,
    "mse_loss": squared_loss,
    "mse_loss_backward": squared_loss_back,
    "binary_cross_entropy_with_logits": logit_loss,
}
