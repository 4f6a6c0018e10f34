"""Sums that are bitwise the same in any order, so nobody waits and nothing depends on who was first.

Each addend is rounded to a multiple of a unit, a power of two fixed before the first arrival, and sums of multiples
of the unit are exact while they stay below 2^53 units, which is what float64 holds. Rounding to the unit u is `(x +
M) - M` with M = 1.5 * 2^52 * u: for |x| <= 2^51 u the sum x + M lies where neighbouring float64 are u apart (Dekker
1971; the same "extraction" as Rump, Ogita, Oishi 2008, "Accurate floating-point summation").

With |x| <= limit = 2^b and at most n <= 2^k addends (k >= 1), u = 2^(b + k - 52) gives |x| <= 2^51 u and every
partial sum at most 2^52 u: overflow is impossible. What the rounding leaves, at most u / 2, can go to a second limb
with a finer unit.
"""

import copy
import math
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import CHUNK, Vector, chunks

MAX_ADDENDS: Final = 2**20


def range_exponent(bound: float) -> int:
    """The least b with bound < 2^b. Raises PayloadRefused on what is no positive float32."""
    if not 2.0**-149 <= bound < 2.0**128:
        raise PayloadRefused(f"a bound is a positive float32, not {bound}")
    return math.frexp(bound)[1]


def units(bound: float, addends: int, limbs: int) -> tuple[float, ...]:
    """The unit of each limb for |x| <= bound; a limb's range is what the one before it leaves."""
    headroom = max(1, (addends - 1).bit_length()) - 52
    return tuple(math.ldexp(1.0, range_exponent(bound) + limb * headroom) for limb in range(1, limbs + 1))


class Accumulator:
    """The exact sum of up to `addends` flat float32 vectors of `size` elements with |x| <= bound.

    The mean is off by at most half the last limb's unit, before its few last roundings (limbs and quotient in float64,
    then float32): with one limb by bound * addends * 2^-51 (for 1,000 addends 2^-17 of the spacing of float32 at the
    bound), with two by bound * addends^2 * 2^-102. Memory is 8 bytes an element and limb.
    """

    def __init__(self, size: int, bound: float, addends: int, limbs: int = 1) -> None:
        if not 1 <= addends <= MAX_ADDENDS:
            raise PayloadRefused(f"a sum has 1 to {MAX_ADDENDS} addends, not {addends}")
        self.size, self.addends, self.count = size, addends, 0
        self.limit: Final = math.ldexp(1.0, range_exponent(bound))
        self._units = units(bound, addends, limbs)
        self._sums: NDArray[np.float64] = np.zeros((limbs, size))

    def add(self, vector: Vector) -> None:
        """Count one more. Raises PayloadRefused, unchanged, on NaN, |x| > limit, another shape, or one too many."""
        self._check(vector)
        if self.count >= self.addends:
            raise PayloadRefused(f"the sum has its {self.addends} addends already")
        self._fold(vector, np.add)
        self.count += 1

    def subtract(self, vector: Vector) -> None:
        """Undo one `add` of the same vector exactly, as if it had never come. Raises PayloadRefused as `add` does."""
        self._check(vector)
        if self.count == 0:
            raise PayloadRefused("nothing was added that could be subtracted")
        self._fold(vector, np.subtract)
        self.count -= 1

    def mean(self) -> Vector:
        """float32, the sum over the count. Raises PayloadRefused where nothing was added."""
        if self.count == 0:
            raise PayloadRefused("nothing was added")
        mean = np.empty(self.size, np.float32)
        for part in chunks(self.size):
            total = self._sums[-1][part]
            for sums in self._sums[-2::-1]:
                total = total + sums[part]
            mean[part] = total / self.count
        return mean

    def __add__(self, other: Self) -> Self:
        """The sum of both. Raises PayloadRefused where they were made differently or have too many addends together."""
        if (self.size, self.addends, self._units) != (other.size, other.addends, other._units):
            raise PayloadRefused("the sums differ in size, unit or addends")
        if self.count + other.count > self.addends:
            raise PayloadRefused(f"together they have more than {self.addends} addends")
        both = copy.copy(self)
        both._sums = self._sums + other._sums
        both.count = self.count + other.count
        return both

    def _check(self, vector: Vector) -> None:
        if vector.shape != (self.size,) or vector.dtype != np.float32:
            raise PayloadRefused(f"an addend is {vector.dtype}{vector.shape}, not float32({self.size},)")
        for part in chunks(self.size):
            if not (float(vector[part].max()) <= self.limit and float(vector[part].min()) >= -self.limit):
                raise PayloadRefused(f"an element is not within {self.limit}")

    def _fold(self, vector: Vector, combine: np.ufunc) -> None:
        rest, rounded = np.empty(CHUNK), np.empty(CHUNK)
        for part in chunks(self.size):
            left, whole = rest[: part.stop - part.start], rounded[: part.stop - part.start]
            np.copyto(left, vector[part])
            for unit, sums in zip(self._units, self._sums, strict=True):
                shift = 1.5 * 2.0**52 * unit
                np.add(left, shift, out=whole)
                np.subtract(whole, shift, out=whole)
                combine(sums[part], whole, out=sums[part])
                if unit != self._units[-1]:
                    np.subtract(left, whole, out=left)
