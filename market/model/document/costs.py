"""Cost rules: the floating-point operations of one application of an operator, from the shapes that go in and come out.

A multiply-add counts as two. A rule may count high but never low, also not for the backward pass, which writes a
gradient as large as each argument, whatever part of it was read: so the arguments' elements count too.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor

Cost = Callable[[Sequence[Any], Sequence[Any]], int]
"""(arguments, results) -> operations."""

TRANSCENDENTAL: Final = 16
"""Operations that stand for one exponential, logarithm, root or error function."""


def elements(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Every element once."""
    return sum(tensor.numel() for tensor in _tensors(arguments)) + sum(tensor.numel() for tensor in _tensors(results))


def transcendental(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    return TRANSCENDENTAL * elements(arguments, results)


def free(_arguments: Sequence[Any], _results: Sequence[Any]) -> int:
    """A view of the same elements: none is touched, forward or backward."""
    return 0


def contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """A matrix product: 2 n m k, and every element once."""
    left = arguments[0]
    return int(2 * results[0].numel() * left.shape[-1]) + elements(arguments, results)


def added_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """addmm: the first argument is added to the product of the next two."""
    return contraction(arguments[1:], results)


def convolution(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each output element sums over one kernel of (channels / groups) planes."""
    weight = arguments[1]
    return int(2 * results[0].numel() * math.prod(weight.shape[1:])) + elements(arguments, results)


def pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each output element reads one window; a kernel of one number is square."""
    kernel = arguments[1]
    spatial = 1 if len(kernel) > 1 else max(1, results[0].dim() - 2)
    return int(results[0].numel() * math.prod(kernel) ** spatial) + elements(arguments, results)


def adaptive_pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Window i of n over a length L spans at most ceil(L / n) + 1 elements."""
    sizes = arguments[1]
    spatial = zip(arguments[0].shape[-len(sizes) :], results[0].shape[-len(sizes) :], strict=True)
    window = math.prod(-(-length // max(1, windows)) + 1 for length, windows in spatial)
    return int(results[0].numel() * window) + elements(arguments, results)


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found
