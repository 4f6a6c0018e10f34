"""Computes the middle values of each column of a block by sorting networks of elementwise minimum and maximum.

A comparator (low, high) puts the smaller of two rows at `low` and the larger at `high`, for thousands of columns in two
numpy calls. The network is Batcher's merge exchange (1968; Knuth, The Art of Computer Programming 3, 5.2.2, algorithm
M): 19 comparators for 8 rows. Comparators that no wanted place depends on are left out. Sorted values do not depend on
the order of the rows, except the sign of zeros; the results below remove that sign.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from gradmarket.market.gradient.arrays import Vector

BLOCK: Final = 2**17
"""Elements of all rows worked on at a time: half a MiB, which fits into a core's cache."""


class Comparator(NamedTuple):
    """Compares rows `low` and `high`; `smaller` and `larger` mark the results that are used afterwards."""

    low: int
    high: int
    smaller: bool = True
    larger: bool = True


@cache
def build_sorting_network(rows: int) -> tuple[Comparator, ...]:
    """Returns the network that sorts `rows` rows, the smallest first."""
    steps: list[Comparator] = []
    top = 1 << max(0, (rows - 1).bit_length() - 1)
    span = top
    while span and rows > 1:
        reach, remainder, distance = top, 0, span
        while True:
            firsts = (row for row in range(rows - distance) if row & span == remainder)
            steps += [Comparator(row, row + distance) for row in firsts]
            if reach == span:
                break
            distance, reach, remainder = reach - span, reach // 2, span
        span //= 2
    return tuple(steps)


@cache
def build_selection_network(rows: int, first: int, last: int) -> tuple[Comparator, ...]:
    """Returns the part of the sorting network that suffices to put the right rows at places `first` to `last` - 1."""
    wanted, steps = set(range(first, last)), []
    for low, high, _, _ in reversed(build_sorting_network(rows)):
        if wanted & {low, high}:
            steps.append(Comparator(low, high, low in wanted, high in wanted))
            wanted |= {low, high}
    return tuple(reversed(steps))


class Sorter:
    """Sorts blocks of `rows` rows until places `first` to `last` - 1 are right. Memory is one block."""

    def __init__(self, rows: int, first: int, last: int) -> None:
        self.places: Final = slice(first, last)
        self.width: Final = max(1, BLOCK // rows)
        self._steps = build_selection_network(rows, first, last)
        self._scratch = np.empty((rows + 2, self.width), np.float32)

    def sort_middle(self, rows: Sequence[Vector]) -> list[Vector]:
        """Returns the wanted places of up to `width` columns, smallest first.

        The returned rows may be overwritten by the next call.
        """
        free = [scratch[: rows[0].size] for scratch in self._scratch]
        places, ours = list(rows), [False] * len(rows)
        for low, high, smaller, larger in self._steps:
            left, right = places[low], places[high]
            if smaller:
                places[low] = np.minimum(left, right, out=free.pop())
            if larger:
                places[high] = np.maximum(left, right, out=free.pop())
            free += [row for row, mine in ((left, ours[low]), (right, ours[high])) if mine]
            ours[low], ours[high] = smaller, larger
        return places[self.places]


def mean_of_middle(rows: Sequence[Vector], trim: int, merged: Vector) -> None:
    """Writes to `merged` the mean of each column without its `trim` smallest and largest values.

    `rows` has at least 2 trim + 1 rows. The values are added from the smallest to the largest in float32, with at most
    one rounding error each.
    """
    kept = len(rows) - 2 * trim
    sorter = Sorter(len(rows), trim, len(rows) - trim)
    for start in range(0, merged.size, sorter.width):
        part = slice(start, start + sorter.width)
        smallest, *more = sorter.sort_middle([row[part] for row in rows])
        total = np.add(smallest, np.float32(0), out=merged[part])
        for values in more:
            np.add(total, values, out=total)
        np.divide(total, np.float32(kept), out=total)


def write_median(rows: Sequence[Vector], merged: Vector) -> None:
    """Writes to `merged` each column's middle value, or the mean of the two middle ones."""
    mean_of_middle(rows, (len(rows) - 1) // 2, merged)
