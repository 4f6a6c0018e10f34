"""Decides whether a node's results can be those of another machine: within the error bound of any order of summation.

Machines of two determinism classes add in other orders, so their bits differ. For an inner product of n terms any order
errs by at most gamma_n |x|^T |y| with gamma_n = n u / (1 - n u) and u = 2^-24 (Higham 2002, "Accuracy and Stability of
Numerical Algorithms", section 3.1); a fused multiply-add only lowers it. TAO (Yao et al. 2025) judges a last operator
so. This module judges every operator that is a sum of products of its arguments, forward and backward: the result in
float64 on the same arguments, the bound by the same operator on absolute values, the number of terms by it on ones.

All others stay unbounded: transcendental functions differ by library, convolutions may be computed by Winograd's
transform and 16-bit products be kept in 16 bits, for all of which no such bound holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from graphdoc.operators.element_operators import SHAPES
from graphdoc.tracing.nodes import run_backward, run_forward
from graphdoc.tracing.passes import CallStep
from graphdoc.tracing.values import Traced, Value

PRODUCTS: Final = frozenset(
    f"{name}.default" for name in ("linear", "matmul", "mm", "bmm", "mv", "dot", "outer", "embedding")
) | {"mul.Tensor", "sum.default", "sum.dim_IntList"}
MOVES: Final = frozenset(SHAPES)
"""Operators that only move elements: forward they round nothing, backward they may add."""
UNIT: Final = 2.0**-24
EXACT_UNIT: Final = 2.0**-53
SMALLEST: Final = 2.0**-126
"""The possible loss of a term where a machine flushes denormal numbers to 0."""
LARGEST: Final = float(torch.finfo(torch.float32).max)


@dataclass(frozen=True)
class Bounded:
    """`within`: whether each element is within its bound; `worst` is the largest error over its bound."""

    within: bool
    worst: float


def judge_rounding(step: CallStep, values: Sequence[Value], claimed: Sequence[Value], seed: bytes) -> Bounded | None:
    """Returns whether `claimed` can be the step's results on `values`; None where its rounding has no bound."""
    name = step.call.step.name
    floats = [value.data for value in (*values, *claimed) if value is not None and isinstance(value.data, Tensor)]
    if name not in PRODUCTS | MOVES or any(each.is_floating_point() and each.dtype != torch.float32 for each in floats):
        return None
    reads, makes = len(step.call.reads), len(step.call.makes)
    changes: tuple[Callable[[Tensor], Tensor], ...] = (lambda tensor: tensor, torch.ones_like, torch.abs)
    runs: list[list[Value]] = []
    for change in changes:
        given = [
            Traced(change(value.data.double()), value.grad)
            if value is not None and isinstance(value.data, Tensor) and value.data.is_floating_point()
            else value
            for value in values
        ]
        ran, results = run_forward(step.call, [each for each in given[:reads] if each is not None], seed, "cpu")
        backward = step.way != "forward"
        runs.append(run_backward(ran, given[reads:][:makes], given[reads + makes :]) if backward else results)
    exact, terms, sizes = runs
    if [value is None for value in exact] != [value is None for value in claimed]:
        return Bounded(False, float("inf"))
    worst = 0.0
    for place, value in enumerate(claimed):
        result, count, size = exact[place], terms[place], sizes[place]
        if value is None or result is None or count is None or size is None:
            continue
        error = _compare(value, result.data, count.data, size.data)
        if error is None:
            return None
        worst = max(worst, error)
    return Bounded(worst <= 1.0, worst)


def _compare(value: Traced, exact: Tensor, terms: Tensor, sizes: Tensor) -> float | None:
    """Returns the largest error of an element over its bound; None where the exact result may be out of range."""
    if not isinstance(exact, Tensor) or not exact.is_floating_point():
        same = exact == value.data
        return 0.0 if (bool(same.all()) if isinstance(same, Tensor) else same) else float("inf")
    if value.data.shape != exact.shape:
        return float("inf")
    count = terms + 2
    gamma = count * UNIT / (1 - count * UNIT)
    bound = (gamma + count * EXACT_UNIT) * sizes + count * SMALLEST
    if not bool((sizes + bound <= LARGEST).all()):
        return None
    error = (value.data.double() - exact).abs() / bound
    return float(error.nan_to_num(float("inf"), float("inf")).max()) if error.numel() else 0.0
