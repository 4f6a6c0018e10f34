"""Normalisation: one weight, bias and running statistic for each channel, or for each place that is normalised."""

import math
from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Conditions,
    check_has_elements,
    check_tensor_shape,
    one_float_type,
    repeat_condition,
)
from graphdoc.document.arguments import refuse_unless


def _by_channel(arguments: Sequence[Any]) -> None:
    """(tensor, then weight, bias and statistics, each one number for a channel, …)."""
    tensor = arguments[0]
    refuse_unless(len(tensor.shape) >= 2, "it has no channels")
    check_has_elements(tensor, "its input")
    refuse_unless(tensor.dtype.is_floating_point, "its input is no float")
    for other in arguments[1:5]:
        if hasattr(other, "shape"):
            check_tensor_shape(other, (tensor.shape[1],), "a weight or a statistic")
            refuse_unless(other.dtype.is_floating_point, "a weight or a statistic is no float")


def _by_batch(arguments: Sequence[Any]) -> None:
    _by_channel(arguments)
    shape = arguments[0].shape
    values = math.prod(shape) // shape[1]
    refuse_unless(values > 1, "it takes the statistics of one value a channel: give it two rows or more")


def _by_group(arguments: Sequence[Any]) -> None:
    tensor, groups, weight, bias = arguments[:4]
    _by_channel([tensor, weight, bias])
    refuse_unless(groups >= 1 and tensor.shape[1] % groups == 0, "its groups are not of its channels")


def _by_place(arguments: Sequence[Any]) -> None:
    """(tensor, the last sizes, which are normalised, weight, bias or epsilon, …)."""
    tensor, sizes = arguments[:2]
    refuse_unless(len(sizes) >= 1 and tuple(tensor.shape[-len(sizes) :]) == tuple(sizes), "its sizes are not its own")
    check_has_elements(tensor, "its input")
    for other in arguments[2:4]:
        if hasattr(other, "shape"):
            check_tensor_shape(other, sizes, "a weight")


def _by_row(arguments: Sequence[Any]) -> None:
    """(direction, length of each row, dimension): by the first or the last, for which torch has one kernel each."""
    direction, length, dimension = arguments
    last = len(direction.shape) - 1
    refuse_unless(last >= 1, "its direction has no rows")
    refuse_unless(dimension in (0, last), "its norms are by a dimension between: use dim=0")
    check_has_elements(direction, "its direction")
    lengths = [size if place == dimension else 1 for place, size in enumerate(direction.shape)]
    check_tensor_shape(length, lengths, "its lengths")
    one_float_type([direction, length])


CONDITIONS: Final[Conditions] = {
    **repeat_condition(_by_batch, "batch_norm.training batch_norm.batch"),
    **repeat_condition(_by_channel, "batch_norm.evaluation instance_norm.default"),
    "group_norm.default": _by_group,
    "_weight_norm.default": _by_row,
    **repeat_condition(_by_place, "layer_norm.default rms_norm.default"),
}
