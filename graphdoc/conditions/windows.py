"""Convolutions and pooling: one number for each dimension of space, each at least its minimum."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    check_has_elements,
    check_tensor_rank,
    check_tensor_shape,
    one_float_type,
)
from graphdoc.document.arguments import refuse_unless

STRIDE_LIMIT: Final = 1024
"""oneDNN's backward pass takes time by the square of a convolution's stride, and ends the process at some 2**16."""


def spread_spatial_values(values: Sequence[int], spatial: int, least: int, subject: str) -> tuple[int, ...]:
    """Returns one value for each dimension of space. Raises DocumentRefused for another number, or a smaller value."""
    refuse_unless(len(values) in (1, spatial), f"its {subject} is not one or {spatial} numbers")
    refuse_unless(min(values) >= least, f"its {subject} is less than {least}")
    return tuple(values) * (spatial if len(values) == 1 else 1)


def _build_convolution_condition(spatial: int) -> Condition:
    """(tensor, weight, bias, stride, padding, dilation, groups); padding is numbers or a word."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, weight, bias, stride, padding, dilation, groups = arguments
        _check_weighted_input(tensor, weight, bias, spatial)
        _check_stride(spread_spatial_values(stride, spatial, 1, "stride"))
        spread_spatial_values(dilation, spatial, 1, "dilation")
        if not isinstance(padding, str):
            spread_spatial_values(padding, spatial, 0, "padding")
        channels = tensor.shape[-spatial - 1]
        fits = groups >= 1 and weight.shape[0] % groups == 0 and channels == weight.shape[1] * groups
        refuse_unless(fits, "its groups are not of its channels")
        check_tensor_shape(bias, (weight.shape[0],), "its bias")

    return condition


def _build_transposed_condition(spatial: int) -> Condition:
    """(tensor, weight, bias, stride, padding, output padding, groups, dilation)."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, weight, bias, stride, padding, beyond, groups, dilation = arguments
        _check_weighted_input(tensor, weight, bias, spatial)
        steps = (
            spread_spatial_values(stride, spatial, 1, "stride"),
            spread_spatial_values(dilation, spatial, 1, "dilation"),
        )
        _check_stride(steps[0])
        spread_spatial_values(padding, spatial, 0, "padding")
        pairs = zip(spread_spatial_values(beyond, spatial, 0, "output padding"), *steps, strict=True)
        refuse_unless(all(more < max(others) for more, *others in pairs), "its output padding is not below its stride")
        fits = groups >= 1 and weight.shape[0] % groups == 0 and tensor.shape[-spatial - 1] == weight.shape[0]
        refuse_unless(fits, "its groups are not of its channels")
        check_tensor_shape(bias, (weight.shape[1] * groups,), "its bias")

    return condition


def _check_stride(stride: Sequence[int]) -> None:
    refuse_unless(max(stride) <= STRIDE_LIMIT, f"its stride is more than {STRIDE_LIMIT}")


def _check_weighted_input(tensor: Any, weight: Any, bias: Any, spatial: int) -> None:
    one_float_type([tensor, weight, bias])
    check_tensor_rank(tensor, (spatial + 1, spatial + 2), "its input")
    check_tensor_rank(weight, (spatial + 2,), "its weight")
    check_has_elements(tensor, "its input")
    check_has_elements(weight, "its weight")


def _build_pooling_condition(spatial: int, dilated: bool) -> Condition:
    """(tensor, kernel, stride, padding, dilation of a maximum, …, divisor of a mean)."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, kernel, stride, padding = arguments[:4]
        check_tensor_rank(tensor, (spatial + 1, spatial + 2), "its input")
        check_has_elements(tensor, "its input")
        sizes = spread_spatial_values(kernel, spatial, 1, "kernel")
        if stride:
            spread_spatial_values(stride, spatial, 1, "stride")
        pads = spread_spatial_values(padding, spatial, 0, "padding")
        refuse_unless(all(2 * pad <= size for pad, size in zip(pads, sizes, strict=True)), "it pads over half a kernel")
        if dilated:
            gaps = spread_spatial_values(arguments[4], spatial, 1, "dilation")
            # every window covers a place of the input: else its index, and the gradient's write, lie beyond it
            fits = all(
                pad == 0 or gap <= size for size, pad, gap in zip(tensor.shape[-spatial:], pads, gaps, strict=True)
            )
            refuse_unless(fits, "a window may lie in the border alone: its dilation is more than its input")
        elif len(arguments) == 7:
            refuse_unless(arguments[6] is None or arguments[6] >= 1, "its divisor is less than 1")

    return condition


def _build_adaptive_condition(spatial: int) -> Condition:
    def condition(arguments: Sequence[Any]) -> None:
        tensor, sizes = arguments
        check_tensor_rank(tensor, (spatial + 1, spatial + 2), "its input")
        check_has_elements(tensor, "its input")
        refuse_unless(len(sizes) == spatial and min(sizes) >= 1, f"its sizes are not {spatial} numbers from 1 on")

    return condition


def _check_im2col(arguments: Sequence[Any]) -> None:
    tensor, kernel, dilation, padding, stride = arguments
    check_tensor_rank(tensor, (3, 4), "its input")
    _check_unfolding(tensor, kernel, dilation, padding, stride)


def _check_col2im(arguments: Sequence[Any]) -> None:
    tensor, size, kernel, dilation, padding, stride = arguments
    check_tensor_rank(tensor, (2, 3), "its input")
    refuse_unless(len(size) == 2 and min(size) >= 1, "its size is not 2 numbers from 1 on")
    _check_unfolding(tensor, kernel, dilation, padding, stride)


def _check_unfolding(tensor: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    check_has_elements(tensor, "its input")
    refuse_unless(all(len(values) == 2 for values in (kernel, dilation, padding, stride)), "its windows are not of 2")
    refuse_unless(min(*kernel, *dilation, *stride) >= 1, "its windows are less than 1")
    refuse_unless(min(padding) >= 0, "its padding is less than 0")


CONDITIONS: Final[Conditions] = {
    **{
        f"conv{spatial}d.{way}": _build_convolution_condition(spatial)
        for spatial in (1, 2, 3)
        for way in ("default", "padding")
    },
    "conv_transpose1d.default": _build_transposed_condition(1),
    "conv_transpose2d.input": _build_transposed_condition(2),
    "conv_transpose3d.input": _build_transposed_condition(3),
    **{f"max_pool{spatial}d.default": _build_pooling_condition(spatial, dilated=True) for spatial in (1, 2, 3)},
    **{f"avg_pool{spatial}d.default": _build_pooling_condition(spatial, dilated=False) for spatial in (1, 2, 3)},
    **{f"adaptive_avg_pool{spatial}d.default": _build_adaptive_condition(spatial) for spatial in (1, 2, 3)},
    **{f"adaptive_max_pool{spatial}d.default": _build_adaptive_condition(spatial) for spatial in (1, 2)},
    "im2col.default": _check_im2col,
    "col2im.default": _check_col2im,
}
