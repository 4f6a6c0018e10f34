"""Normal noise determined by a seed alone, with the same bits on every machine: a repeated merge adds the same noise.

Uniform numbers are blake3's, keyed by the seed. The inverse of the normal distribution is Acklam's rational
approximation (2003, relative error 1.15e-9); its logarithm is a series, so that all is +, -, *, / and a square root,
which IEEE 754 rounds alike everywhere.

The last bits of a sum of floating-point numbers reveal which numbers were added (Mironov 2012, "On significance of the
least significant bits"). So a noised sum is rounded to multiples of 2^-20 of the noise's deviation, and a uniform
number has 128 bits: far out in the tails, to 13 deviations, neighbouring noises are still closer than that, and every
multiple can come from every sum.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import Vector

Floats = NDArray[np.float64]
_A: Final = (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02, 1.383577518672690e02,
             -3.066479806614716e01, 2.506628277459239e00)  # fmt: skip
_B: Final = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02, 6.680131188771972e01,
             -1.328068155288572e01, 1.0)  # fmt: skip
_C: Final = (-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00, -2.549732539343734e00,
             4.374664141464968e00, 2.938163982698783e00)  # fmt: skip
_D: Final = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00, 1.0)
TAIL: Final = 0.02425
TERMS: Final = 16
_WIDE: Final = 16
"""Bytes of a uniform number."""


def draw_normal(seed: bytes, place: int, count: int) -> Floats:
    """Returns standard normal numbers, for element `place` of a vector and those after it.

    One of a number's 128 bits is its sign; the rest is a fraction, of which float64 keeps the first 53 bits from the
    highest 1 on: the probability of numbers beyond it.
    """
    drawn = np.frombuffer(blake3(b"noise", key=seed).digest(_WIDE * count, seek=_WIDE * place), "<u8").reshape(-1, 2)
    first = (drawn[:, 1] >> np.uint64(1)).astype(np.float64)
    beyond = (first + (drawn[:, 0].astype(np.float64) + 0.5) * 2.0**-64) * 2.0**-64
    return np.where(drawn[:, 1] & np.uint64(1), _inverse(beyond), -_inverse(beyond))


def _inverse(low: Floats) -> Floats:
    """Returns the points at which the normal distribution function has these values, all from 0 to a half."""
    centre = low - 0.5
    square = centre * centre
    found = _polynomial(_A, square) * centre / _polynomial(_B, square)
    far = low < TAIL
    root = np.sqrt(-2.0 * _log(low[far]))
    found[far] = _polynomial(_C, root) / _polynomial(_D, root)
    return found


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log(x: Floats) -> Floats:
    """Returns natural logarithms by the series of atanh, after the power of two is taken out."""
    fraction, power = np.frexp(x)
    ratio = (fraction - 1.0) / (fraction + 1.0)
    square, term, total = ratio * ratio, ratio.copy(), np.zeros_like(ratio)
    for odd in range(1, 2 * TERMS, 2):
        total += term / odd
        term = term * square
    return 2.0 * total + power * math.log(2.0)


GRID_BITS: Final = 20
"""A noised sum is published in multiples of 2^-GRID_BITS of the noise's deviation, or less."""


@dataclass(frozen=True)
class Noise:
    """`deviation` is that on each gradient element of the sum of answers; `seed` has 32 bytes, and is secret."""

    deviation: float
    seed: bytes

    def added(self, mean: Vector, answers: int, place: int) -> Vector:
        """Returns float32 elements of the mean of `answers` answers with their noise; `place` is the first's."""
        total = add_normal_noise(mean.astype(np.float64) * answers, self.deviation, self.seed, place)
        return (total / answers).astype(np.float32)


def add_normal_noise(total: Floats, deviation: float, seed: bytes, place: int) -> Floats:
    """Returns float64 elements of a sum with normal noise, as multiples of a power of two; `place` is the first's."""
    grid = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)
    return np.rint((total + deviation * draw_normal(seed, place, total.size)) / grid) * grid
