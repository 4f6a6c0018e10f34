"""The loops of the exact sums and of the norm, compiled: one pass over data that fits a core's cache."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.arrays import CHUNK, Vector, iterate_chunks
from gradmarket.market.gradient.compiled import compile_loop

EXACT: Final = 0
ROUNDED: Final = 1
OUTSIDE: Final = 2


@compile_loop
def begin_sum(row: Any, total: Any, limit: Any) -> Any:
    """Writes the row to `total`, as float64; returns EXACT, or OUTSIDE where an element is not within the limit."""
    outside = 0
    for place in range(row.size):
        value = np.float64(row[place])
        outside += not abs(value) <= limit
        total[place] = value + 0.0  # a mean of zeros is +0
    return OUTSIDE if outside else EXACT


@compile_loop
def add_to_sum(row: Any, total: Any, limit: Any) -> Any:
    """Adds the row; returns EXACT, or OUTSIDE where an element is not within the limit, else ROUNDED where one rounds.

    x + y was exact where taking either of them away again gives the other (Knuth 1998, section 4.2.2, theorem B).
    """
    outside, rounded = 0, 0
    for place in range(row.size):
        value, before = np.float64(row[place]), total[place]
        outside += not abs(value) <= limit
        after = before + value
        rounded += (after - before != value) | (after - value != before)
        total[place] = after
    return OUTSIDE if outside else ROUNDED if rounded else EXACT


@compile_loop
def divide(total: Any, count: Any, mean: Any) -> None:
    """Writes the mean, rounded once in float64 and once to float32."""
    for place in range(mean.size):
        mean[place] = np.float32(total[place] / count)


@compile_loop
def mean_of_few(rows: Any, count: Any, limit: Any, scratch: Any, statuses: Any, mean: Any) -> None:
    """Writes the mean of the first `count` rows, as many elements at a time as `scratch` has, and the status of each.

    A piece whose status is not EXACT has no valid values.
    """
    for number in range(statuses.size):
        start = number * scratch.size
        stop = min(start + scratch.size, mean.size)
        total = scratch[: stop - start]
        status = begin_sum(rows[0][start:stop], total, limit)
        for other in range(1, count):
            status = max(status, add_to_sum(rows[other][start:stop], total, limit))
        statuses[number] = status
        divide(total, count, mean[start:stop])


@compile_loop
def square_tree(vector: Any, squares: Any) -> Any:
    """Returns the sum of squares of at most 2 * squares.size elements, added as `norm` documents it."""
    half = squares.size
    whole = vector.size == 2 * half
    for place in range(half if whole else 0):
        low, high = np.float64(vector[place]), np.float64(vector[place + half])
        squares[place] = low * low + high * high
    for place in range(0 if whole else half):
        low = np.float64(vector[place]) if place < vector.size else np.float64(0.0)
        high = np.float64(vector[place + half]) if place + half < vector.size else np.float64(0.0)
        squares[place] = low * low + high * high
    half //= 2
    while half:
        for place in range(half):
            squares[place] += squares[place + half]
        half //= 2
    return squares[0]


def iterate_square_sums(vector: Vector) -> Iterator[float]:
    """Yields the sums of `norm.square_sums`, to the bit."""
    scratch = np.empty(CHUNK // 2)
    return (float(square_tree(vector[part], scratch)) for part in iterate_chunks(vector.size))
