"""Cost rules: the floating-point operations of one application of an operator, from the shapes that go in and come out.

A multiply-add counts as two. A rule may count high but never low, also not for the backward pass, which writes a
gradient as large as each argument, whatever part of it was read: so the arguments' elements count too. Tensors are
whatever has `shape` and `numel()`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

Cost = Callable[[Sequence[Any], Sequence[Any]], int]
"""(arguments, results) -> operations."""

TRANSCENDENTAL: Final = 16
"""Operations that stand for one exponential, logarithm, root or error function."""
COMPARISONS: Final = 64
"""Operations that stand for one element's part in a sort: more than twice the logarithm of any length here."""


def elements(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Every element once."""
    return sum(tensor.numel() for tensor in _tensors((*arguments, *results)))


def transcendental(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    return TRANSCENDENTAL * elements(arguments, results)


def sorting(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    return COMPARISONS * elements(arguments, results)


def free(_arguments: Sequence[Any], _results: Sequence[Any]) -> int:
    """A view of the same elements: none is touched, forward or backward."""
    return 0


def contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """A matrix product: 2 n m k, and every element once."""
    left = arguments[0]
    return int(2 * results[0].numel() * left.shape[-1]) + elements(arguments, results)


def added_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """addmm and its like: the first argument is added to the product of the next two."""
    return contraction(arguments[1:], results) + elements(arguments, results)


def summed_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """addbmm: the products of a batch are summed."""
    _, left, right = arguments[:3]
    return int(2 * left.numel() * right.shape[-1]) + elements(arguments, results)


def bilinear(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """One weight for each pair of features, each output and each row."""
    _, right, weight = arguments[:3]
    rows = right.numel() // max(1, right.shape[-1])
    return int(4 * rows * weight.numel()) + elements(arguments, results)


def einsum(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """At most one multiply-add for every value of all labels together, for each operand after the first."""
    sizes: dict[str, int] = {}
    operands = arguments[1]
    for labels, operand in zip(str(arguments[0]).split("->")[0].split(","), operands, strict=True):
        _label(labels.replace(" ", ""), operand.shape, sizes)
    return 2 * math.prod(sizes.values()) * max(1, len(operands) - 1) + elements(arguments, results)


def _label(labels: str, shape: Sequence[int], sizes: dict[str, int]) -> None:
    """Adds the size of every label of one operand; dimensions under an ellipsis are labelled from the last one."""
    before, _, after = labels.partition("...")
    hidden = [f"...{place}" for place in range(len(shape) - len(before) - len(after), 0, -1)]
    for label, size in zip((*before, *hidden, *after), shape, strict=True):
        sizes[label] = max(sizes.get(label, 1), int(size))


def differences(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each further difference goes over all elements again."""
    return max(1, int(arguments[1])) * elements(arguments, results)


def distances(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Between all pairs of rows: three operations a feature, one of them perhaps a power."""
    width = int(arguments[0].shape[-1])
    return int((TRANSCENDENTAL + 2) * results[0].numel() * width) + elements(arguments, results)


def convolution(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each output element sums over one kernel of (channels / groups) planes."""
    weight = arguments[1]
    return int(2 * results[0].numel() * math.prod(weight.shape[1:])) + elements(arguments, results)


def transposed_convolution(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each input element is added to one kernel of (channels out / groups) planes."""
    tensor, weight = arguments[:2]
    return int(2 * tensor.numel() * math.prod(weight.shape[1:])) + elements(arguments, results)


def pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Each output element reads one window; a kernel of one number is the same in every dimension."""
    kernel = arguments[1]
    spatial = 1 if len(kernel) > 1 else max(1, len(results[0].shape) - 2)
    return int(results[0].numel() * math.prod(kernel) ** spatial) + elements(arguments, results)


def adaptive_pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Window i of n over a length L spans at most ceil(L / n) + 1 elements."""
    sizes = arguments[1]
    spatial = zip(arguments[0].shape[-len(sizes) :], results[0].shape[-len(sizes) :], strict=True)
    window = math.prod(-(-length // max(1, windows)) + 1 for length, windows in spatial)
    return int(results[0].numel() * window) + elements(arguments, results)


def interpolation(taps: int) -> Cost:
    """Each output element is a weighted sum of this many input elements, with weights computed for it."""

    def cost(arguments: Sequence[Any], results: Sequence[Any]) -> int:
        return int(4 * taps * results[0].numel()) + elements(arguments, results)

    return cost


def attention(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Scores and their sum, and a half more: a fused backward pass computes the scores again (Dao 2023)."""
    query, key, value = arguments[:3]
    width = max(1, int(query.shape[-1]))
    scores = query.numel() // width * int(key.shape[-2])
    products = 3 * scores * (width + int(value.shape[-1]))
    return int(products + TRANSCENDENTAL * scores) + elements(arguments, results)


def recurrence(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Every weight once for each place of each row, and the gates' functions."""
    tensor = arguments[0]
    weights = [weight for weight in _tensors(arguments[1:]) if len(weight.shape) == 2]
    places = tensor.numel() // max(1, int(tensor.shape[-1]))
    gates = sum(int(weight.shape[0]) for weight in weights)
    return int(places * (2 * sum(weight.numel() for weight in weights) + TRANSCENDENTAL * gates)) + elements(
        arguments, results
    )


def _tensors(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _tensors(value)
        elif hasattr(value, "numel"):
            yield value
