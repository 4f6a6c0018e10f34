"""Reads one piece of a shard from all answers at a time, so that memory does not grow with the model."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradmarket.market.gradient.aggregators import Stack
from gradmarket.market.gradient.arrays import Vector

HELD: Final = 2**24
"""Decoded elements, of all answers together, in memory at once: 64 MiB."""


def size_of(stack: Stack) -> int:
    """Returns the number of elements of the shard."""
    return int(stack.bands[-1].part.stop)


def iterate_column_pieces(stack: Stack, part: slice) -> Iterator[tuple[slice, list[Vector]]]:
    """Yields neighbouring elements of `part` with every answer's values there, flat float32, maybe read-only.

    The rows are iterated once for each piece: with at most HELD / SHARD_ELEMENTS answers a shard is one piece.
    """
    width = max(1, HELD // stack.addends)
    for start in range(part.start, part.stop, width):
        piece = slice(start, min(start + width, part.stop))
        cuts = ((row, row[piece]) for row in stack.rows())
        # a copy where the row is much larger, so that the row can be freed
        yield piece, [cut if 2 * cut.size >= row.size else np.array(cut) for row, cut in cuts]


def fold_columns(stack: Stack, fold: Callable[[list[Vector], Vector], None]) -> Vector:
    """Returns the shard that `fold(values of every answer, output)` writes, piece by piece."""
    merged = np.empty(size_of(stack), np.float32)
    for piece, rows in iterate_column_pieces(stack, slice(0, merged.size)):
        fold(rows, merged[piece])
    return merged
