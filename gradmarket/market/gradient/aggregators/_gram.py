"""Computes the exact inner products of all pairs of answers, in two passes over a round's answers.

Each answer's gradient is first rounded to a grid of its own, with 2^BITS steps up to its largest element. Its values
are then integers of at most 2^19, their products at most 2^38, and a sum of up to COLUMNS = 2^15 of them at most 2^53.
So BLAS gives the exact sum in float64, whatever its order, threads or vector width (the idea of Ozaki, Ogita, Oishi,
Rump 2012, "Error-free transformations of matrix multiplication"). The sums of all pieces are added as integers. The
result depends on neither the order of the answers nor the cut into shards. The rounding changes an answer's element by
at most 2^-20 of its largest element.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cmp_to_key, partial
from itertools import groupby, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.aggregators import Stack
from gradmarket.market.gradient.aggregators._columns import iterate_column_pieces
from gradmarket.market.gradient.arrays import Vector, iterate_chunks

BITS: Final = 19
COLUMNS: Final = 2**15
BLOCK: Final = 2**16
"""float64 values of all answers worked on at a time: half a MiB."""
LEAST_EXPONENT: Final = -100
"""Least exponent of a grid's upper end, so that the factor to the grid is a float32."""

Matrix = NDArray[np.float64]


def compute_gram(stacks: Iterable[Stack]) -> Matrix:
    """Returns float64[n, n]: the inner products of the n answers' gradients, each rounded once from the exact sum."""
    largest = [0.0 for _ in next(iter(stacks)).rows()]
    for rows in _iterate_gradient_rows(stacks):
        for index, row in enumerate(rows):
            peaks = (max(float(row[part].max()), -float(row[part].min())) for part in iterate_chunks(row.size))
            largest[index] = max(largest[index], max(peaks, default=0.0))
    # of each answer the least e such that every element of its gradient is under 2^e
    exponents = [max(LEAST_EXPONENT, math.frexp(value)[1]) for value in largest]
    total = _Products([math.ldexp(1.0, BITS - exponent) for exponent in exponents])
    for rows in _iterate_gradient_rows(stacks):
        total.add(rows)
    products = total.high * 2.0**32 + total.low
    scaled: Matrix = np.ldexp(products, np.add.outer(exponents, exponents) - 2 * BITS)
    return scaled


def squared_distances(products: Matrix) -> Matrix:
    """Returns float64[n, n]: the squared distances between answers, from their Gram matrix; exactly symmetric."""
    lengths = np.diag(products)
    return np.maximum(np.add.outer(lengths, lengths) - 2.0 * products, 0.0)


def rank_answers(stacks: Iterable[Stack], products: Matrix) -> list[int]:
    """Returns the answers in an order that depends on their content alone.

    They are sorted by length, then by position among the others, then by bits.
    """
    keys = [(products[index, index], math.fsum(row)) for index, row in enumerate(products.tolist())]
    alike = groupby(sorted(range(len(keys)), key=keys.__getitem__), key=keys.__getitem__)
    return [index for _, group in alike for index in sorted(group, key=cmp_to_key(partial(_compare_answers, stacks)))]


class _Products:
    """Sums of products on the answers' grids, as integers `high` * 2^32 + `low`."""

    def __init__(self, factors: list[float]) -> None:
        count = len(factors)
        self._factors = [np.float32(factor) for factor in factors]
        self._width = min(COLUMNS, max(1, BLOCK // count))
        self._rounded = np.empty(self._width, np.float32)
        # An extra row of zeros: numpy computes a matrix times its own transpose by a slower routine.
        self._grid = np.zeros((count + 1, self._width))
        self.high = np.zeros((count, count), np.int64)
        self.low = np.zeros((count, count), np.int64)

    def add(self, rows: list[Vector]) -> None:
        for start in range(0, rows[0].size, self._width):
            self._add_grid_products([row[start : start + self._width] for row in rows])

    def _add_grid_products(self, rows: list[Vector]) -> None:
        size = rows[0].size
        rounded, grid = self._rounded[:size], self._grid[:, :size]
        for row, factor, on_grid in zip(rows, self._factors, grid, strict=False):
            np.multiply(row, factor, out=rounded)
            np.rint(rounded, out=rounded)
            np.copyto(on_grid, rounded)
        products = (grid[:-1] @ grid.T)[:, :-1].astype(np.int64)
        self.high += products >> 32
        self.low += products & 0xFFFFFFFF


def _iterate_gradient_rows(stacks: Iterable[Stack]) -> Iterator[list[Vector]]:
    for stack in stacks:
        for band in (band for band in stack.bands if band.gradient):
            yield from (rows for _, rows in iterate_column_pieces(stack, band.part))


def _compare_answers(stacks: Iterable[Stack], first: int, second: int) -> int:
    for stack in stacks:
        left, right = (next(islice(stack.rows(), index, None)).view(np.uint32) for index in (first, second))
        different = np.flatnonzero(left != right)
        if different.size:
            return -1 if left[different[0]] < right[different[0]] else 1
    return 0
