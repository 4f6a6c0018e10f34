"""Operators over elements and over dimensions, whose shapes torch's iterators hold on every device."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Conditions,
    check_has_elements,
    check_tensor_shape,
    repeat_condition,
    require_all,
    require_range,
)
from graphdoc.document.arguments import refuse_unless


def _check_prelu(arguments: Sequence[Any]) -> None:
    tensor, weight = arguments
    channels = tensor.shape[1] if len(tensor.shape) > 1 else 1
    refuse_unless(weight.numel() == 1 or tuple(weight.shape) == (channels,), "its weight is not of its channels")


def _check_first_count(arguments: Sequence[Any]) -> None:
    """Checks that a dimension has as many elements as the first ones that are taken."""
    tensor, count, dimension = arguments[:3]
    refuse_unless(-max(1, len(tensor.shape)) <= dimension < max(1, len(tensor.shape)), "there is no such dimension")
    refuse_unless(0 <= count <= (tensor.shape[dimension] if len(tensor.shape) else 1), "it takes more than there are")


def _check_probability_shape(arguments: Sequence[Any]) -> None:
    probability = arguments[1]
    if hasattr(probability, "shape"):
        check_tensor_shape(probability, arguments[0].shape, "its probability")


CONDITIONS: Final[Conditions] = {
    "prelu.default": _check_prelu,
    "topk.default": _check_first_count,
    "chance.bernoulli": _check_probability_shape,
    **repeat_condition(
        require_all(require_range(1, 0.0, 1.0, "its probability")), "dropout.hash dropout.feature dropout.alpha"
    ),
    **repeat_condition(lambda arguments: check_has_elements(arguments[0], "its input"), "max.default min.default"),
    **repeat_condition(
        None,
        "relu.default relu6.default leaky_relu.default threshold.default hardtanh.default hardswish.default "
        "hardsigmoid.default hardshrink.default softshrink.default gelu.default silu.default mish.default elu.default "
        "celu.default selu.default softplus.default glu.default tanh.default sigmoid.default log_sigmoid.default "
        "softmax.int log_softmax.int chance.uniform chance.normal",
    ),
    **repeat_condition(
        None,
        "add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar rsub.Scalar "
        "rsub.Tensor addcmul.default addcdiv.default lerp.Scalar lerp.Tensor neg.default abs.default sign.default "
        "sgn.default square.default reciprocal.default floor.default ceil.default round.default trunc.default "
        "frac.default positive.default isnan.default isinf.default isfinite.default nan_to_num.default exp.default "
        "exp2.default expm1.default log.default log2.default log10.default log1p.default sqrt.default rsqrt.default "
        "sin.default cos.default tan.default asin.default acos.default atan.default sinh.default cosh.default "
        "asinh.default acosh.default atanh.default erf.default erfc.default erfinv.default lgamma.default "
        "atan2.default hypot.default logaddexp.default xlogy.Tensor pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar",
    ),
    **repeat_condition(
        None,
        "clamp.default clamp.Tensor clamp_min.default clamp_max.default maximum.default minimum.default where.self "
        "where.ScalarOther where.ScalarSelf where.Scalar masked_fill.Scalar masked_fill.Tensor fill.Scalar fill.Tensor "
        "eq.Tensor eq.Scalar ne.Tensor ne.Scalar gt.Tensor gt.Scalar lt.Tensor lt.Scalar ge.Tensor ge.Scalar le.Tensor "
        "le.Scalar logical_and.default logical_or.default logical_xor.default logical_not.default bitwise_and.Tensor "
        "bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor __or__.Tensor __xor__.Tensor bitwise_and.Scalar "
        "bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar __or__.Scalar __xor__.Scalar bitwise_not.default",
    ),
    **repeat_condition(
        None,
        "sum.default sum.dim_IntList mean.default mean.dim prod.default prod.dim_int var.default var.dim "
        "var.correction std.default std.dim std.correction var_mean.correction norm.Scalar norm.ScalarOpt_dim "
        "linalg_vector_norm.default logsumexp.default cumsum.default cumprod.default logcumsumexp.default amax.default "
        "amin.default max.dim min.dim argmax.default argmin.default any.default any.dim all.default all.dim "
        "sort.default sort.stable argsort.default",
    ),
    **repeat_condition(
        None,
        "integer.size integer.add integer.sub integer.mul integer.floordiv integer.mod integer.neg integer.max "
        "integer.min",
    ),
}
