"""Newton-Schulz iteration towards the nearest orthogonal matrix, with the same bits on every machine.

X <- M / max(|M|, 1e-7);    five times:  A <- X X^T,  X <- 3.4445 X + (-4.7750 A + 2.0315 A A) X

The coefficients and the least divisor are those of Jordan et al. (2024) and torch.optim.Muon: singular values end
between about 0.7 and 1.2, not at 1. A matrix shorter than the least divisor stays as short: where gradients have
stopped, the momentum goes to 0, and so do the steps.

Between products, matrices are whole numbers of units of 2^-24, in float64. No singular value of X ever exceeds 1.21, so
by Cauchy and Schwarz every partial sum of a product, in whatever order it is added, is a whole number below 4 * 2^48.
float64 holds whole numbers up to 2^53: all sums are exact, and neither vector width, threads nor a fused multiply-add
of the matrix library changes a bit. Rounding to units loses less than the bfloat16 of Jordan et al.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.norm import compute_norm

Matrix = NDArray[np.float64]

FIRST, THIRD, FIFTH = 3.4445, -4.7750, 2.0315
ITERATIONS: Final = 5
UNITS: Final = float(2**24)
UNIT: Final = 1.0 / UNITS
SHORTEST: Final = 1e-7


def orthogonalize_matrix(matrix: Vector) -> Vector:
    """Returns the matrix with its singular values near 1, or 485 times as long where it is far shorter than SHORTEST.

    In float32. A matrix of zeros stays; one that is not finite becomes NaN everywhere.
    """
    length = compute_norm([np.ascontiguousarray(matrix).reshape(-1)])
    if not math.isfinite(length):
        return np.full(matrix.shape, np.nan, np.float32)
    if length == 0.0:
        return np.zeros(matrix.shape, np.float32)
    high = matrix.shape[0] > matrix.shape[1]
    units = iterate_newton_schulz(
        np.rint(np.ascontiguousarray(matrix.T if high else matrix) * (UNITS / max(length, SHORTEST)))
    )
    values = (units * UNIT).astype(np.float32)
    return np.ascontiguousarray(values.T) if high else values


def iterate_newton_schulz(units: Matrix) -> Matrix:
    """Returns the matrix after all iterations; both in units, with at most as many rows as columns."""
    for _ in range(ITERATIONS):
        squared = _multiply_units(units, units.T)
        polynomial = np.rint(squared * THIRD + _multiply_units(squared, squared) * FIFTH)
        units = np.rint(units * FIRST + _multiply_units(polynomial, units))
    return units


def _multiply_units(left: Matrix, right: Matrix) -> Matrix:
    """Returns the product in units; the matrix library's sums are exact (see above)."""
    product: Matrix = left @ right
    product *= UNIT
    np.rint(product, out=product)
    product += 0.0  # a sum of zeros may have either sign
    return product


def count_matrix_operations(shape: tuple[int, ...]) -> int:
    """Returns the floating-point operations for one matrix; a multiply-add counts two."""
    few, many = _sort_sizes(shape)
    return ITERATIONS * (4 * few * few * many + 2 * few * few * few)


def count_matrix_scratch(shape: tuple[int, ...]) -> int:
    """Returns the bytes held while one matrix is computed: five of its size in float64, and four squares."""
    few, many = _sort_sizes(shape)
    return 8 * (5 * few * many + 4 * few * few)


def _sort_sizes(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = shape[0], math.prod(shape[1:])
    return min(rows, columns), max(rows, columns)
