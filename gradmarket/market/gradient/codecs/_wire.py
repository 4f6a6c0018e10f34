"""The parts that packed forms share: arrays one after the other, pairs of means, and two codes of four bits in a byte.

int8 and int4 have whole multiples of a power of two, in blocks of 64 elements. A block's unit is 2^(e - 125 - width),
with e the float32 exponent of its largest magnitude, so that codes stay below 2^(width - 1). A code is rounded to
nearest, ties to even, and cut off at 2^(width - 1) - 1; it is a whole number, and so the sum of any answers is exact. e
is a byte: 1 to 254 (1 for subnormal ones too), 0 where all elements are 0, 255 where one is NaN or infinite; such a
block decodes to NaN, which the inspection refuses.

Rounding is by integers, so the bits are the same on every machine.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs._loops import BLOCK, GREATEST, INVALID, NOT_FINITE, ZERO, round_integers


def split_arrays(data: memoryview, length: int, *arrays: tuple[str, int]) -> list[NDArray[Any]]:
    """Returns views of arrays (dtype, elements) that lie one after the other.

    Raises PayloadRefused where the data are not of that length.
    """
    if len(data) != length:
        raise PayloadRefused(f"a shard of this many elements has {length} bytes, not {len(data)}")
    sections, start = [], 0
    for dtype, count in arrays:
        sections.append(np.frombuffer(data, dtype, count, start))
        start += sections[-1].nbytes
    return sections


def check_means(means: NDArray[np.uint16]) -> None:
    """Raises PayloadRefused where a pair of means is neither two finite, ordered magnitudes nor twice the one NaN."""
    low, high = means[0::2], means[1::2]
    usual = (low <= high) & (high <= GREATEST)
    if not (usual | ((low == NOT_FINITE) & (high == NOT_FINITE))).all():
        raise PayloadRefused("the means of a block are not two finite magnitudes in order")


def build_means_table(means: NDArray[np.uint16]) -> Vector:
    """Returns for each block its four values: lower, upper, and both negative; float32 of shape (blocks, 4)."""
    values = (means.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(-1, 2)
    return np.ascontiguousarray(np.hstack([values, -values]))


LOWER: Final = np.uint8(15)
FOUR: Final = np.uint8(4)

Codes = NDArray[np.uint8]


def join_nibbles(codes: Codes) -> Codes:
    """Returns an even number of codes, two a byte; of each the lower four bits count."""
    return (codes[0::2] & LOWER) | (codes[1::2] << FOUR)


def split_nibbles(pairs: Codes, count: int) -> Codes:
    """Returns all codes of the bytes. Raises PayloadRefused where one beyond the `count` elements is not 0."""
    codes = np.empty(2 * pairs.size, np.uint8)
    np.bitwise_and(pairs, LOWER, out=codes[0::2])
    np.right_shift(pairs, FOUR, out=codes[1::2])
    if codes[count:].any():
        raise PayloadRefused(f"codes beyond the {count} elements of a shard are not 0")
    return codes


def blocks_of(count: int) -> int:
    return -(-count // BLOCK)


def encode_integers(shard: Vector, width: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Returns the exponents of the blocks, and the codes of the elements, filled with 0 to whole blocks."""
    exponents = np.empty(blocks_of(shard.size), np.uint8)
    codes = np.zeros(BLOCK * exponents.size, np.int8)
    round_integers(shard.view(np.uint32), exponents, codes, width)
    return exponents, codes


def decode_integers(exponents: NDArray[np.uint8], codes: NDArray[np.int8], count: int, width: int) -> Vector:
    """Returns the elements that the codes represent; each is exactly a float32."""
    units = np.ldexp(np.float32(1), exponents.astype(np.int32) - (125 + width)).astype(np.float32)
    units[exponents == INVALID] = np.nan
    units[exponents == ZERO] = 0
    if codes.size % BLOCK:
        codes = np.pad(codes, (0, -codes.size % BLOCK))
    shard = np.empty(codes.size, np.float32)
    np.multiply(codes.reshape(-1, BLOCK), units[:, None], out=shard.reshape(-1, BLOCK))
    return shard[:count]
