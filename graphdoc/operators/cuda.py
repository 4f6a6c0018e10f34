"""Lists the operators without a deterministic CUDA kernel.

Votes under `exact` need one, so work with these operators runs on CPUs only. Source: the documentation of
torch.use_deterministic_algorithms, held against the table by a test, and 341 operators called on an H100 and an H200
(torch 2.11): `cumsum` and `cumprod` are documented as throwing, and ran there with equal bits in 47 of 47 calls. A
document calls the operators directly, so kernels that torch's own pad and interpolate avoid count here too.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

Applies = Callable[[Sequence[Any], Sequence[Any]], bool]
"""Maps (arguments, results) to whether such a kernel would run, forward or backward."""


@dataclass(frozen=True)
class Missing:
    """A kernel that CUDA lacks, by its name in torch's documentation. `lack` is the missing property, in words."""

    documented: str
    applies: Applies
    lack: str = "torch has no deterministic CUDA kernel for "


def _is_differentiated(_arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return bool(results[0].requires_grad)


@cache
def is_documented_as_throwing(name: str) -> bool:
    """Returns whether the documentation of this torch lists the name as throwing."""
    text = str(torch.use_deterministic_algorithms.__doc__)
    throwing = text.partition("operations will throw a")[2].partition("In addition")[0]
    return re.search(rf"`{re.escape(name)}`", throwing) is not None


def _pools_to_several(arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Returns whether it pools to several positions; pooling to a single one is a mean."""
    return any(size != 1 for size in arguments[1]) and _is_differentiated(arguments, results)


def _build_pad_condition(mode: str) -> Applies:
    return lambda arguments, results: arguments[2] == mode and _is_differentiated(arguments, results)


def _reduces_places(arguments: Sequence[Any], _results: Sequence[Any]) -> bool:
    """Returns whether a loss (scores, labels, weight, reduction, …) lacks a kernel.

    Over rows alone, or without a reduction, it has one.
    """
    scores, target, _, reduction = arguments[:4]
    return scores.dim() > 2 and not target.dtype.is_floating_point and reduction != 0


_INTERPOLATION: Final = Missing("torch.nn.functional.interpolate", _is_differentiated)
_RECURRENCE: Final = Missing(
    "torch.nn.RNN, GRU and LSTM",
    lambda arguments, results: not arguments[6] and _is_differentiated(arguments, results),
    "only in training mode cuDNN differentiates ",  # seen, torch 2.11
)
_CUBES: Final = Missing(
    "torch.nn.MaxPool3d",
    lambda arguments, results: (
        is_documented_as_throwing("torch.nn.MaxPool3d") and _is_differentiated(arguments, results)
    ),
)
"""Up to torch 2.11, by documentation and trial, it throws; 2.13 documents a kernel."""
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
    "max_pool3d.default": (_CUBES,),
    **dict.fromkeys(("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"), (_RECURRENCE,)),
    "scatter_reduce.two": (Missing("torch.Tensor.scatter_reduce", lambda arguments, _: arguments[4] == "prod"),),
}
"""Missing kernels by operator."""


MIB: Final = 2**20
WORKSPACES: Final[Mapping[str, int]] = {
    "conv": 48 * MIB,
    "lstm.": 16 * MIB,
    "gru.": 32 * MIB,
    "rnn_tanh.": 32 * MIB,
    "rnn_relu.": 32 * MIB,
}
"""Bytes that cuDNN's kernels take beside their tensors on a card, by the beginning of the operator's name: measured on
an H100 as the taken bytes less the bound, for two CNNs (33 and 41 MiB), an LSTM (14) and a GRU (31); the others like
the GRU."""


def workspace_bytes(keys: Iterable[str]) -> int:
    """Returns the bytes of the largest workspace among these operators; one runs at a time and reuses it."""
    return max((size for key in keys for name, size in WORKSPACES.items() if key.startswith(name)), default=0)


def find_missing_kernel(key: str, arguments: Sequence[Any], results: Sequence[Any]) -> str:
    """Returns a text on the kernel that this operator call lacks on CUDA; empty without one. Tensors may be meta."""
    for one in MISSING.get(key, ()):
        if one.applies(arguments, results):
            return f"{key}: {one.lack}{one.documented}"
    return ""
