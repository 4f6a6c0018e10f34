"""Interpolation between places: sizes, scales and modes."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    check_has_elements,
    check_tensor_rank,
    check_tensor_shape,
    repeat_condition,
    require_all,
    require_floating,
    require_range,
)
from graphdoc.document.arguments import refuse_unless

SCALE_LIMIT: Final = 2.0**16


def _build_resize_condition(spatial: int) -> Condition:
    """Checks (tensor, sizes or null, …, scales or null): either, for each dimension of space."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, sizes, scales = arguments[0], arguments[1], arguments[-1]
        check_tensor_rank(tensor, (spatial + 2,), "its input")
        check_has_elements(tensor, "its input")
        refuse_unless((sizes is None) != (scales is None), "it has not either sizes or scales")
        refuse_unless(len(sizes or scales or ()) == spatial, f"it has not {spatial} sizes or scales")
        refuse_unless(sizes is None or min(sizes) >= 1, "a size is less than 1")
        fits = scales is None or all(1 / SCALE_LIMIT <= scale <= SCALE_LIMIT for scale in scales)
        refuse_unless(fits, f"a scale is not within 1/{SCALE_LIMIT:g} to {SCALE_LIMIT:g}")
        longest = zip(tensor.shape[2:], scales or (), strict=False)
        refuse_unless(all(int(size * scale) >= 1 for size, scale in longest), "a size is scaled to nothing")

    return condition


def _check_grid_sample(arguments: Sequence[Any]) -> None:
    """Checks (image, the place of each result in it, …)."""
    tensor, grid = arguments[:2]
    check_tensor_rank(tensor, (4, 5), "its input")
    check_has_elements(tensor, "its input")
    check_tensor_rank(grid, (len(tensor.shape),), "its grid")
    fits = grid.shape[0] == tensor.shape[0] and grid.shape[-1] == len(tensor.shape) - 2 and grid.numel() > 0
    refuse_unless(fits, "its grid is not of its input")
    refuse_unless(len(tensor.shape) == 4 or arguments[2] < 2, "it is cubic in three dimensions")


def _check_affine_grid(arguments: Sequence[Any]) -> None:
    theta, size = arguments[:2]
    refuse_unless(len(size) in (4, 5) and min(size) >= 1, "its size is not 4 or 5 numbers from 1 on")
    check_tensor_shape(theta, (size[0], len(size) - 2, len(size) - 1), "its map")


def _check_pixel_shuffle(arguments: Sequence[Any]) -> None:
    tensor, factor = arguments
    refuse_unless(len(tensor.shape) >= 3 and factor >= 1, "it shuffles no image")
    check_has_elements(tensor, "its input")


def _check_shuffle_channels(arguments: Sequence[Any]) -> None:
    _check_pixel_shuffle(arguments)
    refuse_unless(arguments[0].shape[1] % arguments[1] == 0, "its groups are not of its channels")


CONDITIONS: Final[Conditions] = {
    **repeat_condition(_build_resize_condition(1), "upsample_nearest1d.vec upsample_linear1d.vec"),
    **repeat_condition(
        _build_resize_condition(2), "upsample_nearest2d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec"
    ),
    **repeat_condition(_build_resize_condition(3), "upsample_nearest3d.vec upsample_trilinear3d.vec"),
    "grid_sampler.default": require_all(
        require_floating(0, 1),
        _check_grid_sample,
        require_range(2, 0, 2, "its interpolation"),
        require_range(3, 0, 2, "its padding"),
    ),
    "affine_grid_generator.default": require_all(require_floating(0), _check_affine_grid),
    **repeat_condition(_check_pixel_shuffle, "pixel_shuffle.default pixel_unshuffle.default"),
    "channel_shuffle.default": _check_shuffle_channels,
}
