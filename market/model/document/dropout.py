"""Dropout that every device agrees on: a hash of an element's index decides, never a generator's state."""

import hashlib
from typing import Final

import torch
from torch import Tensor

from gradmarket.market.errors import DocumentRefused

ELEMENTS_LIMIT: Final = 2**31 - 1
_SPREAD: Final = 0x9E3779B1
_FIRST: Final = 0x85EBCA6B
_SECOND: Final = 0xC2B2AE35


def hash_dropout(tensor: Tensor, probability: float, site: int, seed: bytes) -> Tensor:
    """`tensor` with each element zeroed with this probability in [0, 1), the others scaled by 1 / (1 - probability).

    `site` numbers the dropout in its document; `seed` is the microbatch's. Element i (C order) is kept where its
    hash is at least probability * 2**32. Raises DocumentRefused.
    """
    if not 0.0 <= probability < 1.0:
        raise DocumentRefused(f"a dropout probability of {probability} is not in [0, 1)")
    if tensor.numel() > ELEMENTS_LIMIT:
        raise DocumentRefused(f"a dropout over {tensor.numel()} elements")
    threshold = _signed(round(probability * 2**32) - 2**31)
    kept = _hashes(tensor, seed, site) >= threshold
    return tensor * kept.to(tensor.dtype).mul_(1.0 / (1.0 - probability))


def _hashes(tensor: Tensor, seed: bytes, site: int) -> Tensor:
    """int32 of `tensor`'s shape: murmur3's finalizer over the keyed element index, in wrapping 32-bit arithmetic."""
    key = hashlib.sha256(b"dropout" + site.to_bytes(8, "big", signed=True) + seed).digest()
    first, second = (_signed(int.from_bytes(key[start : start + 4], "big")) for start in (0, 4))
    bits = torch.arange(tensor.numel(), dtype=torch.int32, device=tensor.device)
    bits.mul_(_signed(_SPREAD)).add_(first)
    bits.bitwise_xor_(_shifted(bits, 16)).mul_(_signed(_FIRST)).bitwise_xor_(second)
    bits.bitwise_xor_(_shifted(bits, 13)).mul_(_signed(_SECOND))
    bits.bitwise_xor_(_shifted(bits, 16))
    return bits.view(tensor.shape)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """The logical right shift of int32, whose own shift keeps the sign."""
    return (bits >> by).bitwise_and_((1 << (32 - by)) - 1)


def _signed(word: int) -> int:
    """The int32 with the bits of this word."""
    word &= 0xFFFFFFFF
    return word - 2**32 if word >= 2**31 else word
