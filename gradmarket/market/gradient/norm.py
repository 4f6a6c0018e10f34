"""Computes the L2 norm with the same bits on every machine.

float32 squares are exact in float64. Within a chunk of CHUNK squares, padded with zeros, the two halves are added
elementwise until one number is left. The chunks' numbers are added by math.fsum, which rounds the exact sum once. No
step depends on vector width, threads or the order of the chunks.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from gradmarket.market.gradient.arrays import CHUNK, Vector, iterate_chunks


def square_sums(vector: Vector) -> Iterator[float]:
    """Yields the sum of squares of each chunk of a flat float32 vector; NaN or infinite where an element is."""
    squares = np.empty(CHUNK)
    for part in iterate_chunks(vector.size):
        count = part.stop - part.start
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            np.copyto(squares[:count], vector[part])
        squares[count:] = 0.0
        np.multiply(squares, squares, out=squares)
        half = CHUNK // 2
        while half:
            np.add(squares[:half], squares[half : 2 * half], out=squares[:half])
            half //= 2
        yield float(squares[0])


def compute_norm(vectors: Iterable[Vector]) -> float:
    """Returns the L2 norm of all the vectors' elements together; NaN or infinite where an element is."""
    return math.sqrt(math.fsum(part for vector in vectors for part in square_sums(vector)))
