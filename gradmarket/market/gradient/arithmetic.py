"""Functions that the C library computes differently on different machines, built from additions and products alone."""

import math
from typing import Final

TERMS: Final = 13
"""Terms of the cosine's Taylor series: the next one is under 1e-21 on [0, pi/2]."""


def compute_power(base: float, exponent: int) -> float:
    """Returns `base ** exponent` for exponent >= 0, by repeated squaring in float64."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def half_cosine(progress: float) -> float:
    """Returns (1 + cos(pi * progress)) / 2 for progress in [0, 1], within 1e-15.

    Computed as cos^2(pi * progress / 2), whose argument stays where the Taylor series converges fast.
    """
    angle = progress * (math.pi / 2)
    square = angle * angle
    cosine = 1.0
    for term in range(TERMS - 1, 0, -1):
        cosine = 1.0 - cosine * square / ((2 * term - 1) * (2 * term))
    return cosine * cosine
