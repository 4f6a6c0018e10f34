"""Lists the operators without a deterministic CUDA kernel.

Votes under `exact` need one, so work with these operators runs on CPUs only. Source: the documentation of
torch.use_deterministic_algorithms (2.13), which has every name below; a test compares the table with it. torch's own
pad and interpolate avoid some of these kernels. A document calls the operators directly, so replication padding counts
here too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Applies = Callable[[Sequence[Any], Sequence[Any]], bool]
"""Maps (arguments, results) to whether such a kernel would run, forward or backward."""


@dataclass(frozen=True)
class Missing:
    """A kernel that CUDA lacks, by its name in torch's documentation."""

    documented: str
    applies: Applies


def _is_differentiated(_arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return bool(results[0].requires_grad)


def _sums_floats(_arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return bool(results[0].dtype.is_floating_point)


def _pools_to_several(arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Returns whether it pools to several positions; pooling to a single one is a mean."""
    return any(size != 1 for size in arguments[1]) and _is_differentiated(arguments, results)


def _build_pad_condition(mode: str) -> Applies:
    return lambda arguments, results: arguments[2] == mode and _is_differentiated(arguments, results)


def _is_product(arguments: Sequence[Any], _results: Sequence[Any]) -> bool:
    return bool(arguments[4] == "prod")


def _reduces_places(arguments: Sequence[Any], _results: Sequence[Any]) -> bool:
    """Returns whether a loss (scores, labels, weight, reduction, …) lacks a kernel.

    Over rows alone, or without a reduction, there is one.
    """
    scores, target, _, reduction = arguments[:4]
    return scores.dim() > 2 and not target.dtype.is_floating_point and reduction != 0


_INTERPOLATION: Final = Missing("torch.nn.functional.interpolate", _is_differentiated)
_PLACES: Final = Missing("torch.nn.NLLLoss", _reduces_places)

MISSING: Final[Mapping[str, tuple[Missing, ...]]] = {
    "avg_pool3d.default": (Missing("torch.nn.AvgPool3d", _is_differentiated),),
    "adaptive_avg_pool1d.default": (Missing("torch.nn.AdaptiveAvgPool2d", _pools_to_several),),
    "adaptive_avg_pool2d.default": (Missing("torch.nn.AdaptiveAvgPool2d", _pools_to_several),),
    "adaptive_avg_pool3d.default": (Missing("torch.nn.AdaptiveAvgPool3d", _pools_to_several),),
    "adaptive_max_pool1d.default": (Missing("torch.nn.AdaptiveMaxPool2d", _is_differentiated),),
    "adaptive_max_pool2d.default": (Missing("torch.nn.AdaptiveMaxPool2d", _is_differentiated),),
    "upsample_linear1d.vec": (_INTERPOLATION,),
    "upsample_bilinear2d.vec": (_INTERPOLATION,),
    "upsample_trilinear3d.vec": (_INTERPOLATION,),
    "upsample_bicubic2d.vec": (_INTERPOLATION,),
    "grid_sampler.default": (Missing("torch.nn.functional.grid_sample", _is_differentiated),),
    "pad.default": (
        Missing("torch.nn.ReflectionPad", _build_pad_condition("reflect")),
        Missing("torch.nn.ReplicationPad", _build_pad_condition("replicate")),
    ),
    "cross_entropy_loss.default": (_PLACES,),
    "nll_loss_nd.default": (_PLACES,),
    "cumsum.default": (Missing("torch.cumsum", _sums_floats),),
    "cumprod.default": (Missing("torch.cumsum", _is_differentiated),),
    "scatter_reduce.two": (Missing("torch.Tensor.scatter_reduce", _is_product),),
}
"""Missing kernels by operator. The gradient of cumprod uses cumsum."""


def find_missing_kernel(key: str, arguments: Sequence[Any], results: Sequence[Any]) -> str:
    """Returns in words which kernel this operator call lacks on CUDA; empty where none. Tensors may be meta."""
    for one in MISSING.get(key, ()):
        if one.applies(arguments, results):
            return f"{key}: torch has no deterministic CUDA kernel for {one.documented}"
    return ""
