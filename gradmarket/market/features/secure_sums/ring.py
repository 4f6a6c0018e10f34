"""The integers that are summed: a vector in multiples of one power of two, modulo 2^32 or 2^64.

All holders of a round have the same unit, as in the first limb of the exact accumulator, so the sum of their integers
is exact in any order. With |integer| <= most and n holders every sum is within n * most < 2^(bits - 1): it never wraps,
and its sign is that of the ring's element as two's complement.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused, Refused
from gradmarket.market.gradient.arrays import Vector, range_exponent

Integers = NDArray[np.int64]
Elements = NDArray[Any]
"""uint32 or uint64: elements of the ring."""
WORDS: Final = (32, 64)


@dataclass(frozen=True, slots=True)
class Ring:
    """Integers modulo 2^bits, stored little-endian."""

    bits: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.bits // 8}")

    def elements(self, integers: Integers, most: int) -> Elements:
        """Returns integers as elements. Raises PayloadRefused where one is not within `most`."""
        if integers.size and not (-most <= int(integers.min()) and int(integers.max()) <= most):
            raise PayloadRefused(f"an integer is not within {most}")
        return integers.astype(self.dtype)

    def integers(self, elements: Elements) -> Integers:
        """Returns the integers that elements stand for, from -2^(bits - 1) on."""
        return elements.view(f"<i{self.bits // 8}").astype(np.int64)

    def read(self, data: bytes | memoryview, size: int) -> Elements:
        """Returns the elements of received bytes. Raises PayloadRefused on another length."""
        if len(data) != size * self.dtype.itemsize:
            raise PayloadRefused(f"a masked vector has {size * self.dtype.itemsize} bytes, not {len(data)}")
        return np.frombuffer(data, self.dtype)


def ring_for(holders: int, most: int) -> Ring:
    """Returns the smallest ring in which no sum of `holders` holders wraps. Raises Refused where 2^64 is too small."""
    for bits in WORDS:
        if 0 < holders * most < 1 << (bits - 1):
            return Ring(bits)
    raise Refused(f"a sum of {holders} integers within {most} does not fit 64 bits", "take a coarser unit")


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Multiples of 2^exponent, at most `most` of them either way."""

    exponent: int
    most: int

    def integers(self, vector: Vector) -> Integers:
        """Returns a float32 vector in units, rounded to nearest, ties to even.

        Raises PayloadRefused where an element is beyond the bound or not a number.
        """
        units = np.rint(np.ldexp(vector.astype(np.float64), -self.exponent))
        if units.size and not (float(units.max()) <= self.most and float(units.min()) >= -self.most):
            raise PayloadRefused(f"an element is not within {math.ldexp(self.most, self.exponent)}")
        return units.astype(np.int64)

    def mean(self, total: Integers, count: int) -> Vector:
        """Returns the mean of `count` vectors from the sum of their integers, rounded as an Accumulator's mean is."""
        if count < 1:
            raise PayloadRefused("nothing was added")
        return (np.ldexp(total.astype(np.float64), self.exponent) / count).astype(np.float32)


def fixed_point(bound: float, holders: int, bits: int = 32) -> FixedPoint:
    """Returns the finest units of which a ring of `bits` bits can sum `holders` vectors with |x| <= bound."""
    finest = bits - 2 - (holders - 1).bit_length()
    if bits not in WORDS or finest < 1:
        raise Refused(f"{bits} bits do not hold a sum of {holders} holders", f"take {WORDS[-1]} bits")
    finest = min(finest, 52 - (holders - 1).bit_length())  # sums are exact in float64
    return FixedPoint(range_exponent(bound) - finest, 1 << finest)
