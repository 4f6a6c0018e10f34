"""Compiles a codec's inner loop. The loops use integers only, so their bits do not depend on the machine.

numpy needs eight to fifteen passes over a block where one compiled loop needs one: `make bench ONLY=codec` measures it.
"""

from typing import Any, Final

import numpy as np
from numba import njit

MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
INFINITE: Final = np.uint32(0x7F800000)
FRACTION: Final = np.int32(0x7FFFFF)


def compiled(loop: Any) -> Any:
    """Returns the loop as machine code, kept on disk where the package or a cache folder can be written."""
    try:
        return njit(cache=True)(loop)
    except RuntimeError:  # numba's answer where it finds no folder for its cache
        return njit(loop)


@compiled
def largest(bits: Any) -> Any:
    """Returns the largest magnitude of float32 bits, as bits."""
    top = np.uint32(0)
    for position in range(bits.size):
        top = max(top, bits[position] & MAGNITUDE)
    return top


@compiled
def significand(magnitude: Any) -> Any:
    """Returns exponent and significand of a finite float32: |x| = significand * 2^(exponent - 150), exponent >= 1."""
    exponent = magnitude >> np.int32(23)
    normal = np.int32(exponent > 0)
    return exponent + np.int32(1) - normal, (magnitude & FRACTION) | (normal << np.int32(23))
