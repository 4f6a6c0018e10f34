"""Computes the L2 norm with the same bits on every machine, and limits a gradient's by it.

float32 squares are exact in float64. Within a chunk of CHUNK squares, padded with zeros, the two halves are added
elementwise until one number is left. The chunks' numbers are added by math.fsum, which rounds the exact sum once. No
step depends on vector width, threads or the order of the chunks. Clipping is that of Pascanu, Mikolov, Bengio 2013,
"On the difficulty of training RNNs".

A small step along a gradient shows features.loss_change on which rows it lowers the loss:

    x' = x - h g / |g|,    h = 10^-3 |x|

The gradient's length does not matter, so nobody can change the length of the step.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from gradmarket.market.gradient.arrays import CHUNK, Tensors, Vector, iterate_chunks


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


def compute_clip_factor(length: float, limit: float) -> np.float32 | None:
    """Returns the float32 factor for gradients of this norm; None where they are not too long.

    The norm and the factor are float64, the same on every machine.
    """
    return None if length <= limit else np.float32(limit / length)


def clip_gradient(gradient: Tensors, limit: float) -> dict[str, Vector]:
    """Returns the gradient scaled down to L2 norm `limit` over all tensors together; unchanged where it is shorter."""
    scale = compute_clip_factor(compute_norm(tensor.reshape(-1) for tensor in gradient.values()), limit)
    return dict(gradient) if scale is None else {name: tensor * scale for name, tensor in gradient.items()}
