"""Borders around a tensor: their number, and the limits of negative ones."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import Conditions, check_has_elements
from graphdoc.document.arguments import refuse_unless


def _check_constant_pad(arguments: Sequence[Any]) -> None:
    """(tensor, pairs from the last dimension on, …): a negative side cuts, but leaves something."""
    tensor, sides = arguments[:2]
    refuse_unless(len(sides) % 2 == 0 and len(sides) // 2 <= len(tensor.shape), "its sides are no pairs of dimensions")
    for before, after, size in zip(sides[::2], sides[1::2], reversed(tensor.shape), strict=False):
        refuse_unless(min(before, after) >= -size, "a side is cut by more than there is")
        refuse_unless(size + before + after >= 0, "a dimension is cut to less than nothing")


def _check_pad(arguments: Sequence[Any]) -> None:
    tensor, sides, mode, value = arguments
    _check_constant_pad(arguments)
    if mode == "constant":
        return
    refuse_unless(value is None or value == 0, "a value where the border is copied")
    check_has_elements(tensor, "its tensor")
    refuse_unless(len(sides) in (2, 4, 6) and len(tensor.shape) - len(sides) // 2 in (1, 2), "its sides are no image's")
    for before, after, size in zip(sides[::2], sides[1::2], reversed(tensor.shape), strict=False):
        most = {"reflect": size - 1, "circular": size}.get(mode)
        refuse_unless(min(before, after) >= 0, "a side is negative where the border is copied")
        refuse_unless(most is None or max(before, after) <= most, "a side is longer than what is copied")


CONDITIONS: Final[Conditions] = {"pad.default": _check_pad, "constant_pad_nd.default": _check_constant_pad}
