"""Places between places: sizes, scales and ways of looking up."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    between,
    both,
    each,
    filled,
    floating,
    ranked,
    shaped,
)
from graphdoc.document.arguments import refuse_unless

SCALE_LIMIT: Final = 2.0**16


def _resized(spatial: int) -> Condition:
    """(tensor, sizes or null, …, scales or null): either, for each dimension of space."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, sizes, scales = arguments[0], arguments[1], arguments[-1]
        ranked(tensor, (spatial + 2,), "its input")
        filled(tensor, "its input")
        refuse_unless((sizes is None) != (scales is None), "it has not either sizes or scales")
        refuse_unless(len(sizes or scales or ()) == spatial, f"it has not {spatial} sizes or scales")
        refuse_unless(sizes is None or min(sizes) >= 1, "a size is less than 1")
        fits = scales is None or all(1 / SCALE_LIMIT <= scale <= SCALE_LIMIT for scale in scales)
        refuse_unless(fits, f"a scale is not within 1/{SCALE_LIMIT:g} to {SCALE_LIMIT:g}")
        longest = zip(tensor.shape[2:], scales or (), strict=False)
        refuse_unless(all(int(size * scale) >= 1 for size, scale in longest), "a size is scaled to nothing")

    return condition


def _sampled(arguments: Sequence[Any]) -> None:
    """(image, where each result lies in it, …)."""
    tensor, grid = arguments[:2]
    ranked(tensor, (4, 5), "its input")
    filled(tensor, "its input")
    ranked(grid, (len(tensor.shape),), "its grid")
    fits = grid.shape[0] == tensor.shape[0] and grid.shape[-1] == len(tensor.shape) - 2 and grid.numel() > 0
    refuse_unless(fits, "its grid is not of its input")
    refuse_unless(len(tensor.shape) == 4 or arguments[2] < 2, "it is cubic in three dimensions")


def _affine(arguments: Sequence[Any]) -> None:
    theta, size = arguments[:2]
    refuse_unless(len(size) in (4, 5) and min(size) >= 1, "its size is not 4 or 5 numbers from 1 on")
    shaped(theta, (size[0], len(size) - 2, len(size) - 1), "its map")


def _shuffled(arguments: Sequence[Any]) -> None:
    tensor, factor = arguments
    refuse_unless(len(tensor.shape) >= 3 and factor >= 1, "it shuffles no image")
    filled(tensor, "its input")


def _channels(arguments: Sequence[Any]) -> None:
    _shuffled(arguments)
    refuse_unless(arguments[0].shape[1] % arguments[1] == 0, "its groups are not of its channels")


CONDITIONS: Final[Conditions] = {
    **each(_resized(1), "upsample_nearest1d.vec upsample_linear1d.vec"),
    **each(_resized(2), "upsample_nearest2d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec"),
    **each(_resized(3), "upsample_nearest3d.vec upsample_trilinear3d.vec"),
    "grid_sampler.default": both(
        floating(0, 1), _sampled, between(2, 0, 2, "its interpolation"), between(3, 0, 2, "its padding")
    ),
    "affine_grid_generator.default": both(floating(0), _affine),
    **each(_shuffled, "pixel_shuffle.default pixel_unshuffle.default"),
    "channel_shuffle.default": _channels,
}
