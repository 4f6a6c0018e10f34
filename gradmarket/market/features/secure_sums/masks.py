"""Adds masks to a vector: the key stream of AES-256 in counter mode, read as elements of the ring.

A key is used for one mask only. A part of a mask can be made without what is before it, so that several processes may
share a long vector.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums.ring import Elements
from gradmarket.market.gradient.arrays import iterate_chunks

STEP: Final = 2**18
"""Bytes at a time: few enough for a core's second cache."""
TOGETHER: Final = 256
"""Masks that are added side by side, each with a cipher of its own."""
BLOCK: Final = 16
"""Bytes of a cipher's block."""


def add_masks(elements: Elements, plus: Sequence[bytes], minus: Sequence[bytes], start: int = 0) -> None:
    """Adds the masks of the keys in `plus`, and takes off those in `minus`, in place.

    `elements` are those from number `start` on of the whole vector. Raises Refused where that splits a cipher's block.
    """
    offset = start * elements.dtype.itemsize
    if offset % BLOCK:
        raise Refused(f"a part of a mask begins at a multiple of {BLOCK} bytes, not at {offset}")
    signed = [(key, np.add) for key in plus] + [(key, np.subtract) for key in minus]
    counter = modes.CTR((offset // BLOCK).to_bytes(BLOCK, "big"))
    step = STEP // elements.dtype.itemsize
    zeros, stream = bytes(STEP), bytearray(STEP + BLOCK)
    mask = np.frombuffer(stream, elements.dtype)
    for first in range(0, len(signed), TOGETHER):
        ciphers = [
            (Cipher(algorithms.AES(key), counter).encryptor(), put) for key, put in signed[first : first + TOGETHER]
        ]
        for part in iterate_chunks(elements.size, step):
            piece = elements[part]
            for cipher, put in ciphers:
                cipher.update_into(zeros[: piece.nbytes] if piece.nbytes < STEP else zeros, stream)
                put(piece, mask[: piece.size], out=piece)
