"""Normal noise that a seed alone decides, with the same bits on every machine: a merge done again adds the same.

A sum of floating-point numbers tells by its last bits which numbers were added (Mironov 2012, "On significance of the
least significant bits"). So a noised sum is rounded to multiples of 2^-20 of the noise's deviation, and a uniform
number has 128 bits (gradient.normal_numbers): far out in the tails, to 13 deviations, neighbouring noises are still
closer than that, and every multiple can come from every sum.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.normal_numbers import Floats, draw_normal

GRID_BITS: Final = 20
"""A noised sum is told in multiples of 2^-GRID_BITS of the noise's deviation, or less."""


@dataclass(frozen=True)
class Noise:
    """`deviation` is that on each gradient element of the sum of answers; `seed` has 32 bytes, and is secret."""

    deviation: float
    seed: bytes

    def added(self, mean: Vector, answers: int, place: int) -> Vector:
        """Returns float32 elements of the mean of so many answers with their noise; `place` is the first's."""
        total = add_normal_noise(mean.astype(np.float64) * answers, self.deviation, self.seed, place)
        return (total / answers).astype(np.float32)


def add_normal_noise(total: Floats, deviation: float, seed: bytes, place: int) -> Floats:
    """Returns float64 elements of a sum with normal noise, as multiples of a power of two; `place` is the first's."""
    grid = math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)
    return np.rint((total + deviation * draw_normal(seed, place, total.size)) / grid) * grid
