"""Two bits an element: its sign, and whether its magnitude is in the upper class of its block.

Of a block, two magnitudes are kept: the mean of the lower class and the mean of the upper class, each as a bfloat16.
Given the classes, the means have the least squared error. The classes are parted at the mean magnitude of the block:
for a normal distribution the error is then 0.120 of the variance, where the best parting (Max 1960, "Quantizing for
minimum distortion", 4 levels) has 0.1175, and no search is needed.

Magnitudes are integers in units of 2^-20 of the block's largest power of two, so sums are exact and the bits are the
same on every machine. A block with NaN or infinity has NaN for both means and is refused by the inspection.
"""

from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.codecs._compiled import INFINITE, MAGNITUDE, compiled, largest, significand

NOT_FINITE: Final = np.uint16(0x7FC0)
GREATEST: Final = 0x7F7F
"""The largest finite bfloat16."""
SPARE: Final = np.int32(3)
"""A significand has 24 bits; 21 of them are kept, so that 64 of them are summed in 32."""
FURTHEST: Final = np.int32(31)


@compiled
def classes(bits: Any, magnitudes: Any) -> Any:
    """Returns (lower mean, upper mean, signs, upper) of up to 64 elements; both last as bits of a uint64.

    `bits` are float32 bits; `magnitudes` is scratch, int32 of at least as many elements.
    """
    count = np.int32(bits.size)
    top = largest(bits)
    if top >= INFINITE:
        return NOT_FINITE, NOT_FINITE, np.uint64(0), np.uint64(0)
    exponent = max(np.int32(top >> np.uint32(23)), np.int32(1))
    total = np.int32(0)
    for position in range(count):
        own, fraction = significand(np.int32(bits[position] & MAGNITUDE))
        magnitudes[position] = fraction >> min(exponent - own + SPARE, FURTHEST)
        total += magnitudes[position]
    above, many = np.int32(0), np.int32(0)
    for position in range(count):
        is_upper = np.int32(magnitudes[position] * count > total)
        above += magnitudes[position] * is_upper
        many += is_upper
    signs, upper = np.uint64(0), np.uint64(0)
    for position in range(count):
        upper |= np.uint64(magnitudes[position] * count > total) << np.uint64(position)
    for position in range(count):
        signs |= np.uint64(bits[position] >> np.uint32(31)) << np.uint64(position)
    low = bfloat16(_mean(total - above, count - many), exponent)
    high = bfloat16(_mean(above, many), exponent) if many else low
    return low, high, signs, upper


@compiled
def _mean(total: Any, count: Any) -> Any:
    return (total + count // 2) // count


@compiled
def bfloat16(value: Any, exponent: Any) -> Any:
    """Returns value * 2^(exponent - 147) as bfloat16 bits, halves rounded up; 0 under 2^-126, and never infinite."""
    length = 0
    while value >> length:
        length += 1
    if length == 0:
        return np.uint16(0)
    if length > 8:
        rounded = (value + (1 << (length - 9))) >> (length - 8)
        if rounded == 256:
            rounded, length = 128, length + 1
    else:
        rounded = value << (8 - length)
    biased = length + exponent - 21
    if biased <= 0:
        return np.uint16(0)
    return np.uint16(min((biased << 7) | (rounded & 127), GREATEST))
