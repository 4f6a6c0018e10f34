"""What CUDA has no deterministic kernel for: votes under `exact` need one, so such work is for processors.

Source: the documentation of torch.use_deterministic_algorithms (2.13), which has every name below; a test holds the
table against it. torch's own pad and interpolate go round some of these kernels. A document calls the operators
themselves, so replication counts here too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Applies = Callable[[Sequence[Any], Sequence[Any]], bool]
"""(arguments, results) -> whether such a kernel would run, forward or backward."""


@dataclass(frozen=True)
class Missing:
    """A kernel that CUDA has not got, by its name in torch's documentation."""

    documented: str
    applies: Applies


def _differentiated(_arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return bool(results[0].requires_grad)


def _sums_floats(_arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return bool(results[0].dtype.is_floating_point)


def _pools_to_several(arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Pooling to a single place is a mean."""
    return any(size != 1 for size in arguments[1]) and _differentiated(arguments, results)


def _pads(mode: str) -> Applies:
    return lambda arguments, results: arguments[2] == mode and _differentiated(arguments, results)


def _multiplies(arguments: Sequence[Any], _results: Sequence[Any]) -> bool:
    return bool(arguments[4] == "prod")


def _reduces_places(arguments: Sequence[Any], _results: Sequence[Any]) -> bool:
    """(scores, labels, weight, reduction, …): over rows alone, or without a reduction, there is a kernel."""
    scores, target, _, reduction = arguments[:4]
    return scores.dim() > 2 and not target.dtype.is_floating_point and reduction != 0


_INTERPOLATION: Final = Missing("torch.nn.functional.interpolate", _differentiated)
_PLACES: Final = Missing("torch.nn.NLLLoss", _reduces_places)

MISSING: Final[Mapping[str, tuple[Missing, ...]]] = {
    "avg_pool3d.default": (Missing("torch.nn.AvgPool3d", _differentiated),),
    "adaptive_avg_pool1d.default": (Missing("torch.nn.AdaptiveAvgPool2d", _pools_to_several),),
    "adaptive_avg_pool2d.default": (Missing("torch.nn.AdaptiveAvgPool2d", _pools_to_several),),
    "adaptive_avg_pool3d.default": (Missing("torch.nn.AdaptiveAvgPool3d", _pools_to_several),),
    "adaptive_max_pool1d.default": (Missing("torch.nn.AdaptiveMaxPool2d", _differentiated),),
    "adaptive_max_pool2d.default": (Missing("torch.nn.AdaptiveMaxPool2d", _differentiated),),
    "upsample_linear1d.vec": (_INTERPOLATION,),
    "upsample_bilinear2d.vec": (_INTERPOLATION,),
    "upsample_trilinear3d.vec": (_INTERPOLATION,),
    "upsample_bicubic2d.vec": (_INTERPOLATION,),
    "grid_sampler.default": (Missing("torch.nn.functional.grid_sample", _differentiated),),
    "pad.default": (
        Missing("torch.nn.ReflectionPad", _pads("reflect")),
        Missing("torch.nn.ReplicationPad", _pads("replicate")),
    ),
    "cross_entropy_loss.default": (_PLACES,),
    "nll_loss_nd.default": (_PLACES,),
    "cumsum.default": (Missing("torch.cumsum", _sums_floats),),
    "cumprod.default": (Missing("torch.cumsum", _differentiated),),
    "scatter_reduce.two": (Missing("torch.Tensor.scatter_reduce", _multiplies),),
}
"""By operator. The gradient of cumprod is made with cumsum."""


def missing(key: str, arguments: Sequence[Any], results: Sequence[Any]) -> str:
    """Which kernel this use of an operator lacks on CUDA, in words; empty where it lacks none. Tensors may be meta."""
    for one in MISSING.get(key, ()):
        if one.applies(arguments, results):
            return f"{key}: torch has no deterministic CUDA kernel for {one.documented}"
    return ""
