"""The masks of integers that are summed: the key streams of a cipher, added in the ring.

A client of the market checks a job's sums without them, and so without `cryptography` (tests/test_extras.py).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gradmarket.market.features.secure_sums.ring import Elements
from gradmarket.market.gradient.arrays import iterate_chunks

STEP: Final = 2**18
"""Bytes processed at a time: few enough for a core's second cache."""
TOGETHER: Final = 256
"""The number of masks that are added side by side, each with a cipher of its own."""
BLOCK: Final = 16
"""Bytes of a cipher's block."""


def add_masks(elements: Elements, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Adds the masks of the keys in `plus`, and takes off those in `minus`, in place.

    A mask is the key stream of AES-256-GCM with a nonce of zeros, read as elements of the ring. It is AES-256 in
    counter mode from block 2 on (NIST SP 800-38D, 7.1). Libraries compute GCM's stream twice as fast as plain counter
    mode's where a processor enciphers several blocks at once. No tag is made; a key is of one mask.
    """
    signed = [(key, np.add) for key in plus] + [(key, np.subtract) for key in minus]
    nonce, step = modes.GCM(bytes(12)), STEP // elements.dtype.itemsize
    zeros, stream = bytes(STEP), bytearray(STEP + BLOCK)
    mask = np.frombuffer(stream, elements.dtype)
    for first in range(0, len(signed), TOGETHER):
        ciphers = [
            (Cipher(algorithms.AES(key), nonce).encryptor(), put) for key, put in signed[first : first + TOGETHER]
        ]
        for part in iterate_chunks(elements.size, step):
            piece = elements[part]
            for cipher, put in ciphers:
                cipher.update_into(zeros[: piece.nbytes] if piece.nbytes < STEP else zeros, stream)
                put(piece, mask[: piece.size], out=piece)
