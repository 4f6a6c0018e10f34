"""Two codes of four bits in a byte, the first in the lower half."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused

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
