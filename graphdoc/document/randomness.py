"""Random draws that are equal on every device: a hash of an element's index decides, never a generator's state.

The hash is MurmurHash3's 32-bit finalizer (Appleby 2011) over the index times the golden ratio (Knuth 1998, 6.4), with
two key words from SHA-256 of (site, seed). It uses additions, multiplications and shifts of 32-bit integers that wrap,
so the bits are the same on every device and at every vector width. `site` numbers the draws of a document in the order
in which they happen; `seed` is that of the task's microbatch, or RecordedKeys while a pass is recorded.
"""

import hashlib
import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from graphdoc.errors import DocumentRefused

ELEMENTS_LIMIT: Final = 2**31 - 1
_SPREAD: Final = 0x9E3779B1
_FIRST: Final = 0x85EBCA6B
_SECOND: Final = 0xC2B2AE35
LEAST_EXPONENTIAL: Final = 2.0**-25
"""The least exponential draw: half a step of the uniform one, so that its logarithm is finite."""
_SELU: Final = 1.7580993408473766
"""alpha times scale of SELU: alpha dropout replaces elements by its negative limit (Klambauer et al. 2017)."""


RECORDED_DRAWS: Final = 4096


class RecordedKeys:
    """The key words of a recording's draws, in a tensor that every replay reads: int32[RECORDED_DRAWS, 2].

    Each draw takes the next row, which has zeros until the words of a seed replace them.
    """

    def __init__(self, device: torch.device) -> None:
        self._words = torch.zeros(RECORDED_DRAWS, 2, dtype=torch.int32, device=device)
        self._draws: list[tuple[int, int]] = []

    def take_row(self, site: int, stream: int) -> tuple[Tensor, Tensor]:
        """Returns the words of the next draw, scalars. Raises DocumentRefused where it is one too many."""
        if len(self._draws) == RECORDED_DRAWS:
            raise DocumentRefused(f"more than {RECORDED_DRAWS} draws are not recorded")
        row = self._words[len(self._draws)]
        self._draws.append((site, stream))
        return row[0], row[1]

    def set_seed(self, seed: bytes) -> None:
        """Has the next replays draw as this seed does."""
        if self._draws:
            words = [derive_key_words(site, stream, seed) for site, stream in self._draws]
            self._words[: len(words)].copy_(torch.tensor(words, dtype=torch.int32))


Seed = bytes | RecordedKeys


def hash_dropout(tensor: Tensor, probability: float, site: int, seed: Seed) -> Tensor:
    """Returns `tensor` with each element zeroed with this probability in [0, 1), the others divided by 1 - probability.

    Element i (C order) is kept where its hash is at least probability * 2**32. Raises DocumentRefused.
    """
    return tensor * draw_kept_mask(tensor, probability, site, seed).mul_(
        _compute_dropout_scale(probability, tensor.dtype)
    )


def feature_dropout(tensor: Tensor, probability: float, site: int, seed: Seed) -> Tensor:
    """Applies hash_dropout to whole channels of [rows, channels, …]. Raises DocumentRefused."""
    if tensor.dim() < 2:
        raise DocumentRefused("a dropout of channels where there are none")
    one_each = tensor.detach()[(slice(None), slice(None), *[slice(1)] * (tensor.dim() - 2))]
    return tensor * draw_kept_mask(one_each, probability, site, seed).mul_(
        _compute_dropout_scale(probability, tensor.dtype)
    )


def alpha_dropout(tensor: Tensor, probability: float, site: int, seed: Seed) -> Tensor:
    """Applies dropout to SELU's limit, which preserves mean and variance (Klambauer et al. 2017, 4).

    Raises DocumentRefused.
    """
    mask = draw_kept_mask(tensor, probability, site, seed)
    scale = 1.0 / math.sqrt((_SELU * _SELU * probability + 1.0) * (1.0 - probability))
    shift = mask.add(-1.0).mul_(_SELU * scale).add_(_SELU * scale * probability)
    return tensor * mask.mul_(scale) + shift


def draw_kept_mask(like: Tensor, probability: float, site: int, seed: Seed) -> Tensor:
    """Returns zeros, each with this probability in [0, 1), and ones, in `like`'s shape and type.

    Raises DocumentRefused.
    """
    if not 0.0 <= probability < 1.0:
        raise DocumentRefused(f"a dropout probability of {probability} is not in [0, 1)")
    threshold = _convert_signed(round(probability * 2**32) - 2**31)
    return (hash_indices(like, site, seed) >= threshold).to(like.dtype)


def draw_bernoulli(like: Tensor, probability: Tensor | float, site: int, seed: Seed) -> Tensor:
    """Returns ones, each with its probability, and zeros, in `like`'s shape and type."""
    return (draw_uniform(like, torch.float32, site, seed) < probability).to(like.dtype)


def draw_uniform(like: Tensor, dtype: torch.dtype, site: int, seed: Seed, stream: int = 0) -> Tensor:
    """Returns multiples of 2**-24 in [0, 1), in `like`'s shape."""
    return _shift_right(hash_indices(like, site, seed, stream), 8).to(torch.float32).mul_(2.0**-24).to(dtype)


def draw_normal(like: Tensor, dtype: torch.dtype, site: int, seed: Seed) -> Tensor:
    """Returns standard normal draws in `like`'s shape, each from two uniform draws (Box and Muller 1958)."""
    radius = draw_uniform(like, torch.float32, site, seed).neg_().add_(1.0).log_().mul_(-2.0).sqrt_()
    angle = draw_uniform(like, torch.float32, site, seed, stream=1).mul_(2.0 * math.pi)
    return radius.mul_(angle.cos_()).to(dtype)


def hash_indices(like: Tensor, site: int, seed: Seed, stream: int = 0) -> Tensor:
    """Returns int32 in `like`'s shape: the hash of each element's index in C order. Raises DocumentRefused."""
    if like.numel() > ELEMENTS_LIMIT:
        raise DocumentRefused(f"a draw of {like.numel()} elements")
    keyed = derive_key_words(site, stream, seed) if isinstance(seed, bytes) else seed.take_row(site, stream)
    first, second = keyed
    bits = torch.arange(like.numel(), dtype=torch.int32, device=like.device)
    bits.mul_(_convert_signed(_SPREAD)).add_(first)
    bits.bitwise_xor_(_shift_right(bits, 16)).mul_(_convert_signed(_FIRST)).bitwise_xor_(second)
    bits.bitwise_xor_(_shift_right(bits, 13)).mul_(_convert_signed(_SECOND))
    bits.bitwise_xor_(_shift_right(bits, 16))
    return bits.view(like.shape)


def derive_key_words(site: int, stream: int, seed: bytes) -> tuple[int, int]:
    """Returns the two key words of a draw, each as an int32."""
    key = hashlib.sha256(b"dropout" + site.to_bytes(8, "big", signed=True) + seed).digest()
    first, second = (_convert_signed(int.from_bytes(key[8 * stream + half :][:4], "big")) for half in (0, 4))
    return first, second


def _compute_dropout_scale(probability: float, dtype: torch.dtype) -> float:
    """Returns 1 / (1 - probability) in this type, rounded on the host: GPUs and CPUs divide differently.

    As torch's own quotient, which is float32's for shorter types, without a tensor that a recording would keep.
    """
    if dtype == torch.float64:
        return 1.0 / (1.0 - probability)
    quotient = np.float32(1.0) / np.float32(1.0 - probability)
    if dtype == torch.float16:
        return float(np.float16(quotient))
    if dtype == torch.bfloat16:  # float32's upper half, to the nearest, ties to even
        bits = int(quotient.view(np.uint32))
        return float(np.uint32(bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32))
    return float(quotient)


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Returns the logical right shift of int32; torch's own shift keeps the sign."""
    return (bits >> by).bitwise_and_((1 << (32 - by)) - 1)


def _convert_signed(word: int) -> int:
    """Returns the int32 with the bits of this word."""
    word &= 0xFFFFFFFF
    return word - 2**32 if word >= 2**31 else word
