"""Functions that the C library computes differently on different machines, built from additions and products alone."""

import math
from typing import Final

TERMS: Final = 13
"""Terms of the cosine's Taylor series: the next one is under 1e-21 on [0, pi/2]."""
LOG_2: Final = 0.6931471805599453
LOG_TERMS, EXP_TERMS = 20, 18
"""Of the logarithm's series in z^2 <= 1/9, and of the exponential's on [-0.35, 0.35]: the next are under 1e-18."""


def compute_power(base: float, exponent: int) -> float:
    """Returns `base ** exponent` for exponent >= 0, by repeated squaring in float64."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def compute_real_power(base: float, exponent: float) -> float:
    """Returns `base ** exponent` for base > 0, within 1e-14 of itself for results from 1e-6 to 1e6."""
    fraction, twos = math.frexp(base)
    ratio = (fraction - 1.0) / (fraction + 1.0)
    log, square = 0.0, ratio * ratio
    for term in range(LOG_TERMS - 1, -1, -1):
        log = log * square + 1.0 / (2 * term + 1)
    power = exponent * (twos * LOG_2 + 2.0 * ratio * log)
    halvings = round(power / LOG_2)
    rest, result = power - halvings * LOG_2, 1.0
    for term in range(EXP_TERMS, 0, -1):
        result = 1.0 + result * rest / term
    return math.ldexp(result, halvings)


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
