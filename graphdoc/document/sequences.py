"""Recurrent layers, cells and `cdist` are traced as one call whose shapes a formula gives.

Torch's own tracing runs every place of a layer, and reads the number of rows of `cdist`.

The calls stand in for ATen's while a module is traced, have no computation of their own, and are ATen's again in the
graph that is read (`ATEN`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphdoc.conditions.recurrent import CELLS, SEQUENCES, cell_shapes, compute_recurrent_shapes
from graphdoc.document.calls import select_overload

_LIBRARY: Final = torch.library.Library("graphdoc", "DEF")  # type: ignore[no-untyped-call]
_WEIGHTS: Final = 2
"""The place of the weights; the layers over packed sequences have a tensor there."""


def _build_shaped_results(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(arguments[0].new_empty(shape) for shape in compute_recurrent_shapes(arguments))


def _cell_shaped(*arguments: Any) -> Tensor | tuple[Tensor, ...]:
    made = tuple(arguments[0].new_empty(shape) for shape in cell_shapes(arguments))
    return made if len(made) > 1 else made[0]


def _stand_in(key: str) -> tuple[Callable[..., Any], Any, Any]:
    """Returns (the function that modules call, the operator traced for it, ATen's operator)."""
    name = key.partition(".")[0]
    operator = select_overload(key)
    schema = str(operator._schema)
    _LIBRARY.define(name + schema[schema.index("(") :])  # type: ignore[no-untyped-call]
    torch.library.register_fake(
        f"graphdoc::{name}", _cell_shaped if key in CELLS else _build_shaped_results, lib=_LIBRARY
    )
    return getattr(torch, name), getattr(torch.ops.graphdoc, name).default, operator


_STAND_INS: Final = [_stand_in(key) for key in sorted(SEQUENCES | CELLS)]
_TRACED: Final = {called: traced for called, traced, _ in _STAND_INS}
_CELLS: Final = {getattr(torch, key.partition(".")[0]) for key in CELLS}
ATEN: Final = {traced: operator for _, traced, operator in _STAND_INS}


_CDIST: Final = torch.ops.aten.cdist.default
_CDIST_MODES: Final = {None: None, "use_mm_for_euclid_dist_if_necessary": 0, "use_mm_for_euclid_dist": 1,
                       "donot_use_mm_for_euclid_dist": 2}  # fmt: skip
_LIBRARY.define("cdist(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor")  # type: ignore[no-untyped-call]
ATEN[torch.ops.graphdoc.cdist.default] = _CDIST


def _build_distances(first: Tensor, second: Tensor, _p: float, _mode: int | None) -> Tensor:
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])  # type: ignore[no-untyped-call]
    return first.new_empty((*batch, first.shape[-2], second.shape[-2]))


torch.library.register_fake("graphdoc::cdist", _build_distances, lib=_LIBRARY)


def _call_cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary"
) -> Any:
    """Replaces torch.cdist, whose kernel depends on the numbers of rows: a trace would then fix these symbols."""
    return torch.ops.graphdoc.cdist.default(x1, x2, float(p), _CDIST_MODES[compute_mode])


class OneCall(TorchFunctionMode):
    """Makes a recurrent layer or `cdist` one call within the block, except in autocast, whose conversions are
    torch's."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        plain = func in _TRACED and not kwargs and (func in _CELLS or isinstance(args[_WEIGHTS], list | tuple))
        if plain and not torch.is_autocast_enabled("cpu"):
            return _TRACED[func](*args)
        if func is torch.cdist and not torch.is_autocast_enabled("cpu"):
            return _call_cdist(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
