"""Cost rules: the floating-point operations of one operator call, from the shapes of its arguments and results.

A multiply-add counts as two. A rule may overestimate but never underestimate, for the backward pass too. That pass
writes a gradient as large as each argument, even if only a part of it was read, so the arguments' elements count too. A
tensor here is any object with `shape` and `numel()`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

Cost = Callable[[Sequence[Any], Sequence[Any]], int]
"""Maps (arguments, results) to operations."""

TRANSCENDENTAL: Final = 16
"""Operations counted for one exponential, logarithm, root or error function."""
COMPARISONS: Final = 64
"""Operations counted for one element of a sort: more than twice the logarithm of any length here."""


def count_elements(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts every element once."""
    return sum(tensor.numel() for tensor in _iterate_operands((*arguments, *results)))


def count_transcendental(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    return TRANSCENDENTAL * count_elements(arguments, results)


def count_sorting(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    return COMPARISONS * count_elements(arguments, results)


def count_free(_arguments: Sequence[Any], _results: Sequence[Any]) -> int:
    """Counts 0: a view of the same elements touches none of them, forward or backward."""
    return 0


def count_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts a matrix product: 2 n m k, and every element once."""
    left = arguments[0]
    return int(2 * results[0].numel() * left.shape[-1]) + count_elements(arguments, results)


def added_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts addmm and similar: the first argument is added to the product of the next two."""
    return count_contraction(arguments[1:], results) + count_elements(arguments, results)


def summed_contraction(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts addbmm: the products of a batch are summed."""
    _, left, right = arguments[:3]
    return int(2 * left.numel() * right.shape[-1]) + count_elements(arguments, results)


def count_bilinear(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts one weight for each pair of features, each output and each row."""
    _, right, weight = arguments[:3]
    rows = right.numel() // max(1, right.shape[-1])
    return int(4 * rows * weight.numel()) + count_elements(arguments, results)


def count_einsum(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts at most one multiply-add for every combination of label values, for each operand after the first."""
    sizes: dict[str, int] = {}
    operands = arguments[1]
    for labels, operand in zip(str(arguments[0]).split("->")[0].split(","), operands, strict=True):
        # dimensions under an ellipsis are numbered from the last one
        before, _, after = labels.replace(" ", "").partition("...")
        hidden = [f"...{place}" for place in range(len(operand.shape) - len(before) - len(after), 0, -1)]
        for label, size in zip((*before, *hidden, *after), operand.shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), int(size))
    return 2 * math.prod(sizes.values()) * max(1, len(operands) - 1) + count_elements(arguments, results)


def count_differences(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts all elements once for each further difference."""
    return max(1, int(arguments[1])) * count_elements(arguments, results)


def count_distances(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts three operations a feature for all pairs of rows; one of them may be a power."""
    width = int(arguments[0].shape[-1])
    return int((TRANSCENDENTAL + 2) * results[0].numel() * width) + count_elements(arguments, results)


def count_convolution(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts a kernel of (channels / groups) planes for each output element."""
    weight = arguments[1]
    return int(2 * results[0].numel() * math.prod(weight.shape[1:])) + count_elements(arguments, results)


def transposed_convolution(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts a kernel of (output channels / groups) planes for each input element."""
    tensor, weight = arguments[:2]
    return int(2 * tensor.numel() * math.prod(weight.shape[1:])) + count_elements(arguments, results)


def count_pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts one window for each output element; a kernel of one number is the same in every dimension."""
    kernel = arguments[1]
    spatial = 1 if len(kernel) > 1 else max(1, len(results[0].shape) - 2)
    return int(results[0].numel() * math.prod(kernel) ** spatial) + count_elements(arguments, results)


def adaptive_pooling(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts windows: window i of n over a length L spans at most ceil(L / n) + 1 elements."""
    sizes = arguments[1]
    spatial = zip(arguments[0].shape[-len(sizes) :], results[0].shape[-len(sizes) :], strict=True)
    window = math.prod(-(-length // max(1, windows)) + 1 for length, windows in spatial)
    return int(results[0].numel() * window) + count_elements(arguments, results)


def build_interpolation_cost(taps: int) -> Cost:
    """Returns the rule for weighted sums of `taps` input elements, including the computation of the weights."""

    def cost(arguments: Sequence[Any], results: Sequence[Any]) -> int:
        return int(4 * taps * results[0].numel()) + count_elements(arguments, results)

    return cost


def count_attention(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts scores and their sum, and half as much again: a fused backward pass recomputes the scores (Dao 2023)."""
    query, key, value = arguments[:3]
    width = max(1, int(query.shape[-1]))
    scores = query.numel() // width * int(key.shape[-2])
    products = 3 * scores * (width + int(value.shape[-1]))
    return int(products + TRANSCENDENTAL * scores) + count_elements(arguments, results)


def count_recurrence(arguments: Sequence[Any], results: Sequence[Any]) -> int:
    """Counts every weight once for each position of each row, and the gates' functions."""
    tensor = arguments[0]
    weights = [weight for weight in _iterate_operands(arguments[1:]) if len(weight.shape) == 2]
    places = tensor.numel() // max(1, int(tensor.shape[-1]))
    gates = sum(int(weight.shape[0]) for weight in weights)
    return int(places * (2 * sum(weight.numel() for weight in weights) + TRANSCENDENTAL * gates)) + count_elements(
        arguments, results
    )


def _iterate_operands(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _iterate_operands(value)
        elif hasattr(value, "numel"):
            yield value
