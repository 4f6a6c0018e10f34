"""The codecs' inner loops, compiled. They use integers only, so their bits do not depend on the machine.

numpy needs eight to fifteen passes over a block where one compiled loop needs one: `make bench ONLY=codec` measures it.
All loops are in this file: numba keeps machine code by the file that a loop stands in, and would go on with the old
code of another file that it calls.

Two classes (two_bit, topk): of a block, two magnitudes are kept: the mean of the lower class and the mean of the upper
class, each as a bfloat16. Given the classes, the means have the least squared error. The classes are parted at the mean
magnitude of the block: for a normal distribution the error is then 0.120 of the variance, where the best parting (Max
1960, "Quantizing for minimum distortion", 4 levels) has 0.1175, and no search is needed.

An exact 0 stays 0: rows of an embedding that no word of a task has, pruned weights and padding would all move the same
way in every round. So a block with one has three values, 0 and both signs of the upper mean; the lower class is 0, and
parted from the upper at three quarters of the mean magnitude of the elements that are not 0. For a normal distribution
its error is 0.190 of the variance, equal to that of the best three levels.

Magnitudes are integers in units of 2^-20 of the block's largest power of two, so sums are exact and the bits are the
same on every machine. A block with NaN or infinity has NaN for both means and is refused by the inspection.
"""

from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.compiled import compile_loop

MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
INFINITE: Final = np.uint32(0x7F800000)
FRACTION: Final = np.int32(0x7FFFFF)
BLOCK: Final = 64
"""Elements of a block, but for topk."""
ZERO: Final = np.uint8(0)
INVALID: Final = np.uint8(255)
"""The exponent bytes of a block of zeros, and of one with NaN or infinity."""
FURTHEST: Final = np.int32(31)
"""Shifted by this many bits, a significand of 24 bits and its rounding are 0."""
ROUND: Final = np.int32(1 << 22)
"""Added to a magnitude's bits, it rounds the magnitude to a power of two."""
NOT_FINITE: Final = np.uint16(0x7FC0)
GREATEST: Final = 0x7F7F
"""The largest finite bfloat16."""
SPARE: Final = np.int32(3)
"""The bits dropped of a significand's 24: the 21 kept ones allow sums of 64 of them in 32 bits."""
TOP_BLOCK: Final = 4096
TAKEN: Final = 64
COARSE: Final = np.uint32(20)
"""Magnitudes are counted by their upper 11 bits: an eighth of a power of two."""


@compile_loop
def largest(bits: Any) -> Any:
    """Returns the largest magnitude of float32 bits, as bits."""
    top = np.uint32(0)
    for position in range(bits.size):
        top = max(top, bits[position] & MAGNITUDE)
    return top


@compile_loop
def significand(magnitude: Any) -> Any:
    """Returns exponent and significand of a finite float32: |x| = significand * 2^(exponent - 150), exponent >= 1."""
    exponent = magnitude >> np.int32(23)
    normal = np.int32(exponent > 0)
    return exponent + np.int32(1) - normal, (magnitude & FRACTION) | (normal << np.int32(23))


@compile_loop
def round_integers(bits: Any, exponents: Any, codes: Any, width: Any) -> Any:
    most = np.int32((1 << (width - 1)) - 1)
    for block in range(exponents.size):
        piece = bits[block * BLOCK : (block + 1) * BLOCK]
        target = codes[block * BLOCK : (block + 1) * BLOCK]
        top = largest(piece)
        if top == np.uint32(0) or top >= INFINITE:
            exponents[block] = ZERO if top == np.uint32(0) else INVALID
            continue
        exponent = max(np.int32(top >> np.uint32(23)), np.int32(1))
        exponents[block] = np.uint8(exponent)
        for position in range(piece.size):
            own, fraction = significand(np.int32(piece[position] & MAGNITUDE))
            shift = min(exponent - own + np.int32(25 - width), FURTHEST)
            half = (np.int32(1) << (shift - np.int32(1))) - np.int32(1)
            code = min((fraction + half + ((fraction >> shift) & np.int32(1))) >> shift, most)
            sign = np.int32(piece[position] >> np.uint32(31))
            target[position] = (code ^ -sign) + sign


@compile_loop
def pack_powers(bits: Any, exponents: Any, codes: Any) -> Any:
    for block in range(exponents.size):
        piece = bits[block * BLOCK : (block + 1) * BLOCK]
        target = codes[block * BLOCK : (block + 1) * BLOCK]
        top = largest(piece)
        if top >= INFINITE:
            exponents[block] = INVALID
            continue
        exponent = min((np.int32(top) + ROUND) >> np.int32(23), np.int32(254))
        exponents[block] = np.uint8(exponent)
        if exponent == 0:
            continue
        least = max(exponent - np.int32(7), np.int32(1)) << np.int32(23)
        for position in range(piece.size):
            magnitude = np.int32(piece[position] & MAGNITUDE)
            code = min(((magnitude + ROUND) >> np.int32(23)) - exponent + np.int32(7), np.int32(7))
            code = max(code, np.int32(1)) * np.int32(magnitude >= least)
            target[position] = np.uint8(code + np.int32(piece[position] >> np.uint32(31)) * 8 * np.int32(code > 0))


@compile_loop
def unpack_powers(exponents: Any, codes: Any, powers: Any, shard: Any) -> Any:
    for block in range(exponents.size):
        values = powers[exponents[block]]
        for position in range(block * BLOCK, (block + 1) * BLOCK):
            shard[position] = values[codes[position]]


@compile_loop
def classes(bits: Any, magnitudes: Any) -> Any:
    """Returns (lower mean, upper mean, signs, upper) of up to 64 elements; both last as bits of a uint64.

    `bits` are float32 bits; `magnitudes` is scratch, int32 of at least as many elements.
    """
    count = np.int32(bits.size)
    top = largest(bits)
    if top >= INFINITE:
        return NOT_FINITE, NOT_FINITE, np.uint64(0), np.uint64(0)
    exponent = max(np.int32(top >> np.uint32(23)), np.int32(1))
    zeros = np.int32(0)
    for position in range(count):
        zeros += np.int32((bits[position] & MAGNITUDE) == np.uint32(0))
    total = np.int32(0)
    for position in range(count):
        own, fraction = significand(np.int32(bits[position] & MAGNITUDE))
        magnitudes[position] = fraction >> min(exponent - own + SPARE, FURTHEST)
        total += magnitudes[position]
    left, right = count, total
    if zeros > 0:
        left, right = np.int32(4 * (count - zeros)), np.int32(3 * total)
    above, many = np.int32(0), np.int32(0)
    for position in range(count):
        is_upper = np.int32(magnitudes[position] * left > right)
        above += magnitudes[position] * is_upper
        many += is_upper
    signs, upper = np.uint64(0), np.uint64(0)
    for position in range(count):
        upper |= np.uint64(magnitudes[position] * left > right) << np.uint64(position)
    for position in range(count):
        signs |= np.uint64(bits[position] >> np.uint32(31)) << np.uint64(position)
    few = count - many
    low = bfloat16((total - above + few // 2) // few, exponent) if zeros == 0 else np.uint16(0)
    high = bfloat16((above + many // 2) // many, exponent) if many else low
    return low, high, signs, upper


@compile_loop
def bfloat16(value: Any, exponent: Any) -> Any:
    """Returns value * 2^(exponent - 147) as bfloat16 bits, halves rounded up; 0 under 2^-126, and never infinite."""
    length = 0
    while value >> length:
        length += 1
    if length == 0:
        return np.uint16(0)
    rounded = ((value << 9 >> length) + 1) >> 1
    if rounded == 256:
        rounded, length = 128, length + 1
    biased = length + exponent - 21
    if biased <= 0:
        return np.uint16(0)
    return np.uint16(min((biased << 7) | (rounded & 127), GREATEST))


@compile_loop
def pack_two_bit(bits: Any, means: Any, signs: Any, upper: Any) -> Any:
    magnitudes = np.empty(BLOCK, np.int32)
    for block in range(signs.size):
        piece = bits[block * BLOCK : (block + 1) * BLOCK]
        means[block, 0], means[block, 1], signs[block], upper[block] = classes(piece, magnitudes)


@compile_loop
def unpack_two_bit(values: Any, signs: Any, upper: Any, shard: Any) -> Any:
    for block in range(signs.size):
        start = block * BLOCK
        for position in range(min(BLOCK, shard.size - start)):
            negative = (signs[block] >> np.uint64(position)) & np.uint64(1)
            large = (upper[block] >> np.uint64(position)) & np.uint64(1)
            low = values[block, 2] if negative else values[block, 0]
            high = values[block, 3] if negative else values[block, 1]
            shard[start + position] = high if large else low


@compile_loop
def pack_top(bits: Any, means: Any, signs: Any, upper: Any, places: Any) -> Any:
    magnitudes, taken = np.empty(TAKEN, np.int32), np.empty(TAKEN, np.uint32)
    for block in range(signs.size):
        piece = bits[block * TOP_BLOCK : (block + 1) * TOP_BLOCK]
        count = _choose(piece, places[block])
        for number in range(count):
            taken[number] = piece[places[block, number]]
        means[block, 0], means[block, 1], signs[block], upper[block] = classes(taken[:count], magnitudes)


@compile_loop
def _choose(piece: Any, places: Any) -> Any:
    """Writes the positions of the largest magnitudes, in rising order; returns how many elements there are to take."""
    for number in range(TAKEN):
        places[number] = number
    if piece.size <= TAKEN:
        return piece.size
    threshold, equals = _threshold(piece)
    number = 0
    for position in range(piece.size):
        magnitude = piece[position] & MAGNITUDE
        if magnitude >= threshold:
            if magnitude == threshold:
                if equals == 0:
                    continue
                equals -= 1
            places[number] = position
            number += 1
    return TAKEN


@compile_loop
def _threshold(piece: Any) -> Any:
    """Returns the magnitude of the last element to take, and how many of that magnitude are taken."""
    counts = np.zeros(2048, np.int32)
    for position in range(piece.size):
        counts[(piece[position] & MAGNITUDE) >> COARSE] += 1
    above, bucket = 0, 2047
    while above + counts[bucket] < TAKEN:
        above += counts[bucket]
        bucket -= 1
    inside, number = np.empty(counts[bucket], np.uint32), 0
    for position in range(piece.size):
        magnitude = piece[position] & MAGNITUDE
        if magnitude >> COARSE == bucket:
            inside[number] = magnitude
            number += 1
    inside.sort()
    last = inside[inside.size - (TAKEN - above)]
    larger = above
    for magnitude in inside:
        larger += magnitude > last
    return last, TAKEN - larger


@compile_loop
def unpack_top(values: Any, signs: Any, upper: Any, places: Any, shard: Any) -> Any:
    for block in range(signs.size):
        for number in range(min(TAKEN, shard.size - block * TOP_BLOCK)):
            negative = (signs[block] >> np.uint64(number)) & np.uint64(1)
            large = (upper[block] >> np.uint64(number)) & np.uint64(1)
            shard[block * TOP_BLOCK + places[block, number]] = values[block, 2 * negative + large]
