"""Merges answers by one weight each, determined by their geometry.

The geometry is that of the gradients alone. It ignores loss and buffers, so an answer with a good gradient may have any
of them: they are merged by the median of each element.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gradmarket.market.gradient.aggregators import Stack
from gradmarket.market.gradient.aggregators._columns import iterate_column_pieces, size_of
from gradmarket.market.gradient.aggregators._gram import Matrix, compute_gram, rank_answers
from gradmarket.market.gradient.aggregators._sorting import write_median
from gradmarket.market.gradient.arrays import CHUNK, Vector

Rule = Callable[[Matrix, Sequence[int]], Sequence[float]]
"""Maps the Gram matrix and the answers' ranking to a weight for each answer.

Weights are at least 0, sum to 1, and do not depend on the order of the answers.
"""


def merge_weighed(stacks: Iterable[Stack], rule: Rule) -> Iterator[Vector]:
    """Yields for each stack the weighted mean of its gradients, and the median of everything else.

    Products and sums are float32, in the order of the answers' ranking: at most two rounding errors for each answer.
    """
    products = compute_gram(stacks)
    ranked = rank_answers(stacks, products)
    weights = rule(products, ranked)
    heavy = [(index, np.float32(weights[index])) for index in ranked if weights[index] > 0.0]
    return (_merge_shard(stack, heavy) for stack in stacks)


def squared_distances_to(centre: Sequence[float], products: Matrix) -> list[float]:
    """Returns the squared distance of each answer to sum_j centre_j x_j, for weights that sum to 1.

    |x_i - z|^2 = G_ii - 2 sum_j c_j G_ij + sum_jk c_j c_k G_jk; each sum is rounded once, so their order does not
    matter.
    """
    along = [math.fsum(row) for row in (products * np.array(centre)).tolist()]
    length = math.fsum(weight * value for weight, value in zip(centre, along, strict=True))
    squares = np.diag(products).tolist()
    return [max(0.0, math.fsum((square, -2.0 * value, length))) for square, value in zip(squares, along, strict=True)]


def normalise_weights(weights: Sequence[float]) -> list[float]:
    """Returns the weights scaled to sum to 1."""
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _merge_shard(stack: Stack, heavy: Sequence[tuple[int, np.float32]]) -> Vector:
    merged = np.empty(size_of(stack), np.float32)
    for band in stack.bands:
        for piece, rows in iterate_column_pieces(stack, band.part):
            own = merged[piece]
            if not band.gradient:
                write_median(rows, own)
                continue
            (first, weight), *others = [(rows[index], weight) for index, weight in heavy]
            product = np.empty(CHUNK // 2, np.float32)
            for start in range(0, own.size, product.size):
                part = slice(start, min(start + product.size, own.size))
                total = np.multiply(first[part], weight, out=own[part])
                for row, weight_of_row in others:
                    np.add(total, np.multiply(row[part], weight_of_row, out=product[: total.size]), out=total)
    return merged
