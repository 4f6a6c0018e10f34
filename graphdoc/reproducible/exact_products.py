"""Matrix products, convolutions and windows, from exact sums of products."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from graphdoc.errors import DocumentRefused
from graphdoc.reproducible.exact import multiply_exactly, sum_exactly


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Returns the float32 product of [m, k] and [k, n], or of [rows, m, k] and [rows, k, n]."""
    return multiply_exactly(left, right).to(left.dtype, copy=True)


def add_product(added: Tensor, left: Tensor, right: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """Returns beta * added + alpha * (left @ right), each operation rounded."""
    found = multiply(left, right)
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    return found + (added if beta == 1 else added * beta)


def multiply_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    return multiply(matrix, vector.unsqueeze(-1)).squeeze(-1)


def multiply_vectors(left: Tensor, right: Tensor) -> Tensor:
    return multiply(left.unsqueeze(0), right.unsqueeze(-1)).reshape(())


def convolve(
    tensor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Returns the convolution of [rows, channels, places...]: each window is a row of a matrix product."""
    _refuse_transposed(transposed)
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    patches, places = _build_patches(windows, tensor, groups)
    found = multiply(patches, weight.reshape(groups, weight.shape[0] // groups, -1).transpose(1, 2))
    # [rows, channels, *places] from [groups, rows * places, channels of a group]
    grouped = found.reshape(found.shape[0], tensor.shape[0], *places, found.shape[-1])
    result = grouped.permute(1, 0, -1, *range(2, 2 + len(places))).flatten(1, 2).contiguous()
    return result if bias is None else result + bias.view(-1, *[1] * len(places))


def convolve_back(
    gradient: Tensor,
    tensor: Tensor,
    weight: Tensor,
    _bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns the gradients of a convolution's input, weight and bias, as far as they are wanted."""
    _refuse_transposed(transposed)
    windows = _Windows(weight.shape[2:], stride, padding, dilation)
    rows, places, dims = gradient.shape[0], gradient.shape[2:], gradient.dim() - 2
    channels = weight.shape[0] // groups
    # [groups, rows * places, channels of a group] from [rows, channels, *places]
    grouped = gradient.reshape(rows, groups, channels, *places)
    outgoing = grouped.permute(1, 0, *range(3, 3 + dims), 2).reshape(groups, -1, channels)
    by_input = by_weight = None
    if wanted[0]:
        patches = multiply(outgoing, weight.reshape(groups, channels, -1))
        grouped = patches.reshape(groups, rows, *places, tensor.shape[1] // groups, *windows.kernel)
        order = (1, 0, 2 + dims, *range(2, 2 + dims), *range(3 + dims, 3 + 2 * dims))
        by_input = windows.add_back(grouped.permute(order).flatten(1, 2), tensor.shape)
    if wanted[1]:
        patches, _ = _build_patches(windows, tensor, groups)
        by_weight = multiply(outgoing.transpose(1, 2), patches).reshape(weight.shape)
    by_bias = sum_exactly(gradient, (0, *range(2, 2 + dims))).to(gradient.dtype) if wanted[2] else None
    return by_input, by_weight, by_bias


def _refuse_transposed(transposed: bool) -> None:
    if transposed:
        raise DocumentRefused("a transposed convolution has no reproducible kernel: upsample, then convolve")


class _Windows:
    """The places of the windows of a convolution or of pooling."""

    def __init__(
        self, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> None:
        count = len(kernel)
        self.kernel = list(kernel)
        self.stride, self.padding, self.dilation = (
            list(given) if len(given) == count else [given[0]] * count
            for given in (stride or kernel, padding, dilation)
        )

    def cut(self, tensor: Tensor, filler: float = 0.0) -> Tensor:
        """Returns a view of the padded tensor: [rows, channels, *places, *kernel]."""
        if any(self.padding):
            sides = [side for size in reversed(self.padding) for side in (size, size)]
            tensor = torch.constant_pad_nd(tensor, sides, filler)
        tensor = tensor.contiguous()
        steps = tensor.stride()[2:]
        places = [
            (size - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilation in zip(
                tensor.shape[2:], self.kernel, self.stride, self.dilation, strict=True
            )
        ]
        moves = [step * stride for step, stride in zip(steps, self.stride, strict=True)]
        inner = [step * dilation for step, dilation in zip(steps, self.dilation, strict=True)]
        shape = (*tensor.shape[:2], *places, *self.kernel)
        return tensor.as_strided(shape, (*tensor.stride()[:2], *moves, *inner))

    def add_back(self, cut: Tensor, shape: Sequence[int]) -> Tensor:
        """Returns the tensor of which `cut` is the view, each place the sum of its windows' values in kernel order."""
        places = cut.shape[2 : 2 + len(self.kernel)]
        padded = [size + 2 * padding for size, padding in zip(shape[2:], self.padding, strict=True)]
        total = cut.new_zeros((*shape[:2], *padded))
        for offset in product(*map(range, self.kernel)):
            target = total
            for dim, begin in enumerate(offset):
                first, stride = begin * self.dilation[dim], self.stride[dim]
                last = first + stride * (places[dim] - 1)
                target = torch.ops.aten.slice(target, dim + 2, first, last + 1, stride)
            of_offset: tuple[Any, ...] = (..., *offset)
            target.add_(cut[of_offset])
            if cut.is_meta:
                break
        for dim, padding in enumerate(self.padding):
            total = total.narrow(dim + 2, padding, shape[dim + 2])
        return total.contiguous()


def _build_patches(windows: _Windows, tensor: Tensor, groups: int) -> tuple[Tensor, Sequence[int]]:
    """Returns [groups, rows * places, channels of a group * kernel], and the places."""
    cut = windows.cut(tensor)
    dims = len(windows.kernel)
    places = cut.shape[2 : 2 + dims]
    grouped = cut.reshape(cut.shape[0], groups, cut.shape[1] // groups, *cut.shape[2:])
    order = (1, 0, *range(3, 3 + dims), 2, *range(3 + dims, 3 + 2 * dims))
    by_place = grouped.permute(order)
    return by_place.reshape(groups, tensor.shape[0] * places.numel(), -1), places


def pool_mean(tensor: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> Tensor:
    """Returns avg_pool2d of windows without padding."""
    _refuse_padding(rest)
    cut = _Windows(_pair(kernel), stride, (0, 0), (1, 1)).cut(tensor if tensor.dim() == 4 else tensor.unsqueeze(0))
    mean = (sum_exactly(cut, (-2, -1)) / (cut.shape[-1] * cut.shape[-2])).to(tensor.dtype)
    return mean if tensor.dim() == 4 else mean.squeeze(0)


def pool_mean_back(
    gradient: Tensor, tensor: Tensor, kernel: Sequence[int], stride: Sequence[int], *rest: Any
) -> Tensor:
    """Returns the gradient of pool_mean's input."""
    _refuse_padding(rest)
    windows = _Windows(_pair(kernel), stride, (0, 0), (1, 1))
    shape = tensor.shape if tensor.dim() == 4 else (1, *tensor.shape)
    each = gradient.reshape(-1, *gradient.shape[-3:]) / (windows.kernel[0] * windows.kernel[1])
    return windows.add_back(each[..., None, None].expand(*each.shape, *windows.kernel), shape).view(tensor.shape)


def _pair(kernel: Sequence[int]) -> list[int]:
    return [*kernel, *kernel][:2] if len(kernel) == 1 else list(kernel)


def _refuse_padding(rest: Sequence[Any]) -> None:
    default: tuple[Any, ...] = ((0,), False, True, None)
    padding, ceil, _, divisor = (*rest, *default[len(rest) :])
    if any(padding) or ceil or divisor:
        raise DocumentRefused("avg_pool2d with padding, ceil_mode or a divisor has no reproducible kernel")
