"""The array types of the protocol, and the fixed chunks in which they are processed on every machine.

Every sum and product in this folder is an elementwise IEEE 754 operation of numpy or Python, never a dot product or
np.sum: those differ in their last bits between vector widths.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused

Vector = NDArray[np.float32]
"""Flat float32."""

Tensors = Mapping[str, NDArray[np.float32]]
"""Named float32 arrays of any shape."""

Arrays = Mapping[str, NDArray[Any]]
"""Named arrays of any dtype, as safetensors can hold them."""

CHUNK: Final = 2**15
"""Elements processed at a time: few enough for a core's cache, enough to hide the cost of a call.

The norm's bits depend on it, so it is part of the protocol.
"""


def iterate_chunks(size: int, step: int = CHUNK) -> Iterator[slice]:
    """Yields [0, size) in steps of `step`."""
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def range_exponent(bound: float) -> int:
    """Returns the least b with bound < 2^b. Raises PayloadRefused where `bound` is no positive float32."""
    if not 2.0**-149 <= bound < 2.0**128:
        raise PayloadRefused(f"a bound is a positive float32, not {bound}")
    return math.frexp(bound)[1]
