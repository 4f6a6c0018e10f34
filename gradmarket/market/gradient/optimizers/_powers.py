"""Powers from additions and products alone, with the same bits on every machine."""

import math
from typing import Final

LOG_2: Final = 0.6931471805599453
LOG_TERMS, EXP_TERMS = 20, 18
"""Terms of the logarithm's series in z^2 <= 1/9, and of the exponential's on [-0.35, 0.35]: later ones are < 1e-18."""


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
    """Returns `base ** exponent` for base > 0, with a relative error within 1e-14 for results from 1e-6 to 1e6."""
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
