"""Losses: a reduction is one of three words, and a weight has one number for each class."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    check_tensor_shape,
    repeat_condition,
    require_all,
    require_floating,
    require_range,
)
from graphdoc.document.arguments import refuse_unless


def _build_reduction_condition(place: int) -> Condition:
    """Returns the condition None, mean or sum, by torch's numbers: kernels leave the answer unwritten for any other."""
    return require_range(place, 0, 2, "a reduction")


def _check_class_target(arguments: Sequence[Any]) -> None:
    """(scores, target, weight, …): rows of places, or one row; a target is of classes, or of the scores' shape."""
    scores, target, weight = arguments[:3]
    rank = len(scores.shape)
    refuse_unless(rank > 0, "its scores have no classes")
    places = (scores.shape[0], *scores.shape[2:]) if rank > 1 else ()
    same = target.dtype.is_floating_point and tuple(target.shape) == tuple(scores.shape)
    refuse_unless(same or tuple(target.shape) == places, "its target is not of its scores' rows")
    check_tensor_shape(weight, (scores.shape[1 if rank > 1 else 0],), "its weight")
    refuse_unless(scores.dtype.is_floating_point, "its scores are not floats")
    refuse_unless(weight is None or weight.dtype == scores.dtype, "its weight is of another type")


def _same_shape(arguments: Sequence[Any]) -> None:
    check_tensor_shape(arguments[1], arguments[0].shape, "its target")


CONDITIONS: Final[Conditions] = {
    "cross_entropy_loss.default": require_all(
        _build_reduction_condition(3), _check_class_target, require_range(5, 0.0, 1.0, "label smoothing")
    ),
    "nll_loss.default": require_all(
        _build_reduction_condition(3),
        lambda arguments: refuse_unless(len(arguments[0].shape) <= 2, "its scores have not 1 or 2 dimensions"),
        _check_class_target,
    ),
    "nll_loss_nd.default": require_all(_build_reduction_condition(3), _check_class_target),
    **repeat_condition(
        _build_reduction_condition(2), "mse_loss.default l1_loss.default smooth_l1_loss.default kl_div.default"
    ),
    "huber_loss.default": require_all(_build_reduction_condition(2), require_floating(0, 1)),
    "soft_margin_loss.default": require_all(_build_reduction_condition(2), require_floating(0, 1)),
    "binary_cross_entropy.default": require_all(_build_reduction_condition(3), _same_shape, require_floating(0, 1, 2)),
    "binary_cross_entropy_with_logits.default": require_all(_build_reduction_condition(4), _same_shape),
    "margin_ranking_loss.default": _build_reduction_condition(4),
    "hinge_embedding_loss.default": _build_reduction_condition(3),
    "cosine_embedding_loss.default": _build_reduction_condition(4),
    "triplet_margin_loss.default": _build_reduction_condition(7),
    "poisson_nll_loss.default": _build_reduction_condition(5),
    "cosine_similarity.default": None,
    "pairwise_distance.default": None,
}
