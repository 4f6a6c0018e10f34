"""Products of matrices, attention and distances: contracted dimensions have one size, and all tensors one type."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Conditions,
    check_has_elements,
    check_tensor_rank,
    check_tensor_shape,
    one_float_type,
    repeat_condition,
    require_all,
    require_floating,
    require_range,
)
from graphdoc.document.arguments import refuse_unless


def _check_attention(arguments: Sequence[Any]) -> None:
    """(query, key, value, mask, …, shared heads): [rows, …, places, width], the mask over places of both."""
    query, key, value, mask = arguments[:4]
    one_float_type([query, key, value])
    rank = len(query.shape)
    refuse_unless(3 <= rank == len(key.shape) == len(value.shape), "its tensors are not all of 3 or more dimensions")
    for tensor in (query, key, value):
        check_has_elements(tensor, "a tensor")
    refuse_unless(query.shape[-1] == key.shape[-1], "query and key are of several widths")
    refuse_unless(key.shape[:-1] == value.shape[:-1], "key and value are of several places")
    queries = query.shape[:-2]
    keys = key.shape[:-2]
    shared = bool(arguments[7])
    if shared:
        fits = len(queries) >= 2 and queries[-1] % keys[-1] == 0
        refuse_unless(fits and queries[:-1] == keys[:-1], "its heads do not share its keys evenly")
    else:
        pairs = zip(queries, keys, strict=True)
        refuse_unless(all(one == other or 1 in (one, other) for one, other in pairs), "its rows or heads are several")
    if mask is not None:
        causal = arguments[5]
        refuse_unless(not causal, "it has a mask and is causal")
        scores = (*query.shape[:-1], key.shape[-2])
        rank = len(mask.shape)
        fits = 2 <= rank <= len(scores) and all(
            size in (1, score) for size, score in zip(mask.shape, scores[-rank:], strict=True)
        )
        refuse_unless(fits, "its mask is not of its scores' shape")


def _check_linear(arguments: Sequence[Any]) -> None:
    tensor, weight, bias = arguments
    check_tensor_rank(weight, (1, 2), "its weight")
    refuse_unless(len(tensor.shape) >= 1 and tensor.shape[-1] == weight.shape[-1], "its weight is not of its features")
    if bias is not None:
        refuse_unless(len(weight.shape) == 2, "a bias beside one row of weights")
        check_tensor_shape(bias, weight.shape[:1], "its bias")


def _check_bilinear(arguments: Sequence[Any]) -> None:
    left, right, weight, bias = arguments
    check_tensor_rank(weight, (3,), "its weight")
    refuse_unless(left.shape[:-1] == right.shape[:-1], "its inputs are of several rows")
    fits = len(left.shape) >= 1 and (left.shape[-1], right.shape[-1]) == tuple(weight.shape[1:])
    refuse_unless(fits, "its weight is not of its features")
    check_tensor_shape(bias, weight.shape[:1], "its bias")


def _check_distances(arguments: Sequence[Any]) -> None:
    """Between rows of […, rows, features]; the power is not negative, the way of computing one of three."""
    left, right, power, way = arguments
    one_float_type([left, right])
    refuse_unless(min(len(left.shape), len(right.shape)) >= 2, "its inputs have no rows")
    refuse_unless(left.shape[-1] == right.shape[-1] >= 1, "its rows are of several widths")
    refuse_unless(power >= 0, "its power is negative")
    refuse_unless(way is None or way in (0, 1, 2), "its way of computing is not 0, 1 or 2")


CONDITIONS: Final[Conditions] = {
    **repeat_condition(
        require_all(_check_attention, require_range(4, 0.0, 1.0, "its probability")),
        "scaled_dot_product_attention.default",
    ),
    "attention.dropout": require_all(_check_attention, require_range(4, 0.0, 1.0, "its probability")),
    "linear.default": _check_linear,
    "bilinear.default": require_all(require_floating(0, 1, 2, 3), _check_bilinear),
    "cdist.default": _check_distances,
    "linalg_cross.default": None,
    **repeat_condition(
        None, "matmul.default mm.default bmm.default mv.default dot.default outer.default einsum.default"
    ),
    **repeat_condition(None, "addmm.default baddbmm.default addbmm.default"),
}
