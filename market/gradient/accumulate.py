"""Sums that are bitwise the same in any order, so nobody waits and nothing depends on who was first.

Each addend is rounded to a multiple of a unit, a power of two fixed before the first arrival, and sums of multiples
of the unit are exact while they stay below 2^53 units, which is what float64 holds. Rounding to the unit u is `(x +
M) - M` with M = 1.5 * 2^52 * u: for |x| <= 2^51 u the sum x + M lies where neighbouring float64 are u apart (Dekker
1971; the same "extraction" as Rump, Ogita, Oishi 2008, "Accurate floating-point summation").

The sum x + M is M and a whole number of units, and so are their 64 bits read as integers: what is kept is the sum of
those integers, modulo 2^64, from which the bits of M are taken once for each addend.

With |x| <= limit = 2^b and at most n <= 2^k addends (k >= 1), u = 2^(b + k - 52) gives |x| <= 2^51 u and every
partial sum at most 2^52 u: overflow is impossible. What the rounding leaves, at most u / 2, can go to a second limb
with a finer unit.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector, chunks

MAX_ADDENDS: Final = 2**20
STEP: Final = 2**14
"""Elements worked on at a time."""


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
        self._shifts = [1.5 * 2.0**52 * unit for unit in self._units]
        self._sums: NDArray[np.int64] = np.zeros((limbs, size), np.int64)

    def clear(self) -> None:
        """As if nothing had been added; the memory is kept, and warm."""
        self._sums.fill(0)
        self.count = 0

    def add(self, vector: Vector) -> None:
        """Count one more. Raises PayloadRefused, unchanged, on NaN, |x| > limit, another shape, or one too many."""
        self._check_room(1)
        self._check(vector)
        self._fold_whole(vector)
        self.count += 1

    def extend(self, vectors: Sequence[Vector]) -> None:
        """`add` for all of them, a few elements of each at a time. Raises as `add` does; then the sum is spoilt."""
        self._check_room(len(vectors))
        for vector in vectors:
            self._check_shape(vector)
        scratch = np.empty(STEP)
        for part in chunks(self.size, STEP):
            for vector in vectors:
                self._check_range(vector[part])
                self._fold(vector, part, scratch)
        self.count += len(vectors)

    def mean(self) -> Vector:
        """float32, the sum over the count. Raises PayloadRefused where nothing was added."""
        if self.count == 0:
            raise PayloadRefused("nothing was added")
        mean = np.empty(self.size, np.float32)
        whole, total, coarser = np.empty(STEP, np.int64), np.empty(STEP), np.empty(STEP)
        for part in chunks(self.size, STEP):
            length = part.stop - part.start
            ours = self._sum(len(self._units) - 1, part, whole[:length], total[:length])
            for limb in range(len(self._units) - 2, -1, -1):
                ours += self._sum(limb, part, whole[:length], coarser[:length])
            mean[part] = np.divide(ours, self.count, out=ours)
        return mean

    def _check_room(self, more: int) -> None:
        if self.count + more > self.addends:
            raise PayloadRefused(
                f"the sum has {self.count} of its {self.addends} addends already, and {more} more came"
            )

    def _check(self, vector: Vector) -> None:
        self._check_shape(vector)
        for part in chunks(self.size):
            self._check_range(vector[part])

    def _check_shape(self, vector: Vector) -> None:
        if vector.shape != (self.size,) or vector.dtype != np.float32:
            raise PayloadRefused(f"an addend is {vector.dtype}{vector.shape}, not float32({self.size},)")

    def _check_range(self, part: Vector) -> None:
        if not (float(part.max()) <= self.limit and float(part.min()) >= -self.limit):
            raise PayloadRefused(f"an element is not within {self.limit}")

    def _fold_whole(self, vector: Vector) -> None:
        scratch = np.empty(STEP)
        for part in chunks(self.size, STEP):
            self._fold(vector, part, scratch)

    def _fold(self, vector: Vector, part: slice, scratch: NDArray[np.float64]) -> None:
        left = scratch[: part.stop - part.start]
        if len(self._shifts) == 1:
            np.add(vector[part], np.float64(self._shifts[0]), out=left)  # of float64: a float32 is widened first
            np.add(self._sums[0][part], left.view(np.int64), out=self._sums[0][part])
            return
        np.copyto(left, vector[part])
        for shift, sums in zip(self._shifts[:-1], self._sums[:-1], strict=True):
            whole = left + shift
            np.add(sums[part], whole.view(np.int64), out=sums[part])
            np.subtract(whole, shift, out=whole)
            np.subtract(left, whole, out=left)
        np.add(left, self._shifts[-1], out=left)
        np.add(self._sums[-1][part], left.view(np.int64), out=self._sums[-1][part])

    def _sum(self, limb: int, part: slice, whole: NDArray[np.int64], out: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of one limb into `out`, exact; `whole` is written over."""
        base = int(np.float64(self._shifts[limb]).view(np.int64)) * self.count
        offset = (base + 2**63) % 2**64 - 2**63
        np.subtract(self._sums[limb][part], np.int64(offset), out=whole)
        np.copyto(out, whole)
        return np.multiply(out, self._units[limb], out=out)
