"""Sums float32 vectors exactly: the bits are the same in any order of arrival, so addends are added as they come.

A sum is kept in limbs. Each addend is cut into multiples of the first limb's unit, a power of two fixed before the
first arrival; the remainder is cut into multiples of the second's, and so on. Sums of multiples of a unit are exact
while they stay below 2^53 units, the limit of float64. Rounding to the unit u is `(x + M) - M` with M = 1.5 * 2^52 * u:
for |x| <= 2^51 u the sum x + M lies where neighbouring float64 are u apart (Dekker 1971; the same "extraction" as Rump,
Ogita, Oishi 2008, "Accurate floating-point summation").

The sum x + M is M plus a whole number of units, and its 64 bits as an integer are M's plus that number. The accumulator
keeps the sum of those integers modulo 2^64, and subtracts the bits of M from it once for each addend.

With |x| <= limit = 2^b and at most n <= 2^k addends (k >= 1), u = 2^(b + k - 52) gives |x| <= 2^51 u and every partial
sum at most 2^52 u: overflow is impossible. The remainder of the rounding is at most u / 2, the next limb's range. The
last limb's unit is at most 2^-149, of which every float32 is a multiple, so no remainder is left. So the bound decides
only how many limbs there are, never how exact the sum is.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import cycle, islice, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector, iterate_chunks, range_exponent
from gradmarket.market.gradient.sums import OUTSIDE, ROUNDED, mean_of_few

MAX_ADDENDS: Final = 2**20
FEW: Final = 16
"""The most vectors whose mean is tried in float64 first."""
STEP: Final = 2**13
"""Elements processed at a time."""
OUT_OF_RANGE: Final = "an element is not within {}"
SMALLEST: Final = -149
"""The exponent of the smallest float32, of which all others are multiples."""


def compute_limb_units(bound: float, addends: int) -> tuple[float, ...]:
    """Returns the unit of each limb for |x| <= bound.

    A limb's range is the remainder of the one before; the last leaves no remainder.
    """
    bits = _compute_limb_bits(addends)
    limbs = -((range_exponent(bound) - SMALLEST) // -bits)
    return tuple(math.ldexp(1.0, range_exponent(bound) - limb * bits) for limb in range(1, limbs + 1))


def _compute_limb_bits(addends: int) -> int:
    """Returns by how many powers of two a limb's unit is finer than that of the limb before it."""
    return 52 - max(1, (addends - 1).bit_length())


def quick_mean(vectors: Sequence[Vector], bound: float, mean: Vector) -> Iterator[slice]:
    """Writes the mean of at most FEW flat float32 vectors to `mean`; yields the pieces that it could not compute.

    It adds in float64 and goes on only while no addition rounds. So a piece has the bits that an Accumulator gives, or
    is yielded. Raises PayloadRefused as `Accumulator.add` does. It is one compiled loop: threads that merge side by
    side rarely wait for the interpreter.
    """
    if not 1 <= len(vectors) <= FEW:
        raise PayloadRefused(f"a quick mean is of 1 to {FEW} vectors, not {len(vectors)}")
    limit, pieces = math.ldexp(1.0, range_exponent(bound)), list(iterate_chunks(mean.size, STEP))
    statuses = np.empty(len(pieces), np.int64)
    # always as many of one kind, so that the loop is compiled once: copies, where some are read-only and others are not
    kinds = {(vector.flags.writeable, vector.flags.aligned, vector.flags.c_contiguous) for vector in vectors}
    rows = tuple(islice(cycle(vectors if len(kinds) == 1 else map(np.array, vectors)), FEW))
    mean_of_few(rows, len(vectors), limit, np.empty(STEP), statuses, mean)
    if OUTSIDE in statuses:
        raise PayloadRefused(OUT_OF_RANGE.format(limit))
    return (part for part, status in zip(pieces, statuses, strict=True) if status == ROUNDED)


def _check_range(part: Vector, limit: float) -> None:
    if not (float(part.max()) <= limit and float(part.min()) >= -limit):
        raise PayloadRefused(OUT_OF_RANGE.format(limit))


class Accumulator:
    """The exact sum of up to `addends` flat float32 vectors of `size` elements with |x| <= bound.

    The mean is the exact one rounded three times in float64, then once to float32. Memory is 8 bytes an element for
    each limb that is in use: usually two, and one more where addends are about 2^-50 of the bound or less.
    """

    def __init__(self, size: int, bound: float, addends: int) -> None:
        if not 1 <= addends <= MAX_ADDENDS:
            raise PayloadRefused(f"a sum has 1 to {MAX_ADDENDS} addends, not {addends}")
        self.size, self.addends, self.count = size, addends, 0
        self.limit: Final = math.ldexp(1.0, range_exponent(bound))
        self._units = compute_limb_units(bound, addends)
        self._bits = _compute_limb_bits(addends)
        self._shifts = [1.5 * 2.0**52 * unit for unit in self._units]
        self._sums: list[NDArray[np.int64]] = []
        """The sums of each limb in use."""
        self._folds: NDArray[np.int64] = np.zeros((len(self._units), -(-size // STEP)), np.int64)
        """Addends that each limb of each piece has taken; addends without a remainder for it do not count."""

    def clear(self) -> None:
        """Resets the sum to nothing added, and keeps the allocated memory."""
        for sums in self._sums:
            sums.fill(0)
        self._folds.fill(0)
        self.count = 0

    def add(self, vector: Vector) -> None:
        """Adds one vector.

        Raises PayloadRefused, and leaves the sum unchanged, on NaN, |x| > limit, another shape, or one addend too many.
        """
        self._check_room(1)
        self._check_addend(vector)
        self._fold_whole(vector)
        self.count += 1

    def extend(self, vectors: Sequence[Vector]) -> None:
        """Adds all vectors, a few elements of each at a time.

        Raises as `add` does; after that the sum is invalid.
        """
        self._check_room(len(vectors))
        for vector in vectors:
            self._check_shape(vector)
        scratch = np.empty((2, STEP))
        for number, part in enumerate(iterate_chunks(self.size, STEP)):
            for vector in vectors:
                _check_range(vector[part], self.limit)
                self._fold_piece(vector, number, part, scratch)
        self.count += len(vectors)

    def mean(self) -> Vector:
        """Returns the sum over the count, as float32. Raises PayloadRefused where nothing was added."""
        if self.count == 0:
            raise PayloadRefused("nothing was added")
        mean = np.empty(self.size, np.float32)
        for number, part in enumerate(iterate_chunks(self.size, STEP)):
            total = self._sum_limbs(number, part)
            mean[part] = np.divide(total, self.count, out=total)
        return mean

    def _check_room(self, more: int) -> None:
        if self.count + more > self.addends:
            raise PayloadRefused(
                f"the sum has {self.count} of its {self.addends} addends already, and {more} more came"
            )

    def _check_addend(self, vector: Vector) -> None:
        self._check_shape(vector)
        for part in iterate_chunks(self.size):
            _check_range(vector[part], self.limit)

    def _check_shape(self, vector: Vector) -> None:
        if vector.shape != (self.size,) or vector.dtype != np.float32:
            raise PayloadRefused(f"an addend is {vector.dtype}{vector.shape}, not float32({self.size},)")

    def _fold_whole(self, vector: Vector) -> None:
        scratch = np.empty((2, STEP))
        for number, part in enumerate(iterate_chunks(self.size, STEP)):
            self._fold_piece(vector, number, part, scratch)

    def _fold_piece(self, vector: Vector, number: int, part: slice, scratch: NDArray[np.float64]) -> None:
        """Adds piece `number` of a vector, limb by limb, until no remainder is left."""
        left, whole = scratch[:, : part.stop - part.start]
        np.copyto(left, vector[part])
        for limb, shift in enumerate(self._shifts):
            if limb == len(self._sums):
                self._sums.append(np.zeros(self.size, np.int64))
            sums = self._sums[limb][part]
            np.add(left, shift, out=whole)
            np.add(sums, whole.view(np.int64), out=sums)
            self._folds[limb, number] += 1
            np.subtract(whole, shift, out=whole)
            np.subtract(left, whole, out=left)
            if limb > 0 and not np.bitwise_or.reduce(left.view(np.int64)):
                return  # x - x is +0, whose bits are all 0

    def _sum_limbs(self, number: int, part: slice) -> NDArray[np.float64]:
        """Returns the sum of a piece. Carries go to coarser limbs first, so that no limb cancels a coarser one."""
        limbs = [limb for limb in range(len(self._units)) if self._folds[limb, number]]
        wholes = [self._compute_limb_sum(limb, number, part) for limb in limbs]
        for coarse, fine in reversed(list(pairwise(wholes))):
            carry = (fine + (1 << (self._bits - 1))) >> self._bits
            coarse += carry
            fine -= carry << self._bits
        total = np.zeros(part.stop - part.start)
        for limb, whole in reversed(list(zip(limbs, wholes, strict=True))):
            total += whole * self._units[limb]
        return total

    def _compute_limb_sum(self, limb: int, number: int, part: slice) -> NDArray[np.int64]:
        """Returns the sum of one limb in its units."""
        base = int(np.float64(self._shifts[limb]).view(np.int64)) * int(self._folds[limb, number])
        return self._sums[limb][part] - np.int64((base + 2**63) % 2**64 - 2**63)
