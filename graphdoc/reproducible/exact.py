"""Sums whose every partial sum is exact, so that no order, thread or fused multiply-add changes their bits.

Terms are rounded to multiples of one step, with so few bits that float64 holds each partial sum: the pre-rounding of
Demmel and Nguyen ("Parallel reproducible summation", 2015, IEEE Trans. Comput. 64(7)), and for products the error-free
splitting of Ozaki et al. (2012, Numer. Algorithms 59), of which the leading slice alone is taken.

The products of one pass share memory: fresh pages cost a product a fifth of its time.

Threads share every step, by torch and BLAS, in any blocks: no split changes a bit. A second thread gains less than in
native arithmetic, where a product is one step: here it is some twenty, after each of which threads wait for another.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import repeat
from typing import Final

import torch
from torch import Tensor

_KEPT: Final[ContextVar[dict[int, Tensor] | None]] = ContextVar("scratch", default=None)
"""The memory by place; None where nothing is kept."""


@contextmanager
def hold_scratch() -> Iterator[None]:
    """Keeps taken memory for the next taker of the same place, until the end of the block."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def take(place: int, shape: Sequence[int], beside: Tensor) -> Tensor:
    """Returns a float64 tensor of any values on the device of `beside`; fresh where no scratch is held.

    The next taker of the same place overwrites it.
    """
    places = _KEPT.get()
    if places is None:
        return torch.empty(shape, dtype=torch.float64, device=beside.device)
    count, kept = math.prod(shape), places.pop(place, None)
    if kept is None or kept.numel() < count or kept.device != beside.device:
        kept = None  # freed before the larger one is taken
        kept = torch.empty(count, dtype=torch.float64, device=beside.device)
    places[place] = kept
    return kept[:count].view(tuple(shape))


SIGNIFICAND: Final = 53
FACTOR_BITS: Final = 22
"""Most bits of a factor of a product, counted from the power of two above the largest of its row (or column)."""
DEPTH: Final = 2**11
"""Products in one exact sum, of factors of 21 bits: longer rows are cut, and the parts added in order."""
BLOCK: Final = 2**16
"""Elements of a factor that are rounded at once on each thread, so that intermediate values stay in the cache."""
TERM_BITS: Final = 45
"""Most bits of a term of a sum: a float32 loses none of them within 2**21 of the largest."""
_EXPONENT: Final = {
    torch.float32: (torch.int32, 0x7F800000, 24),
    torch.float64: (torch.int64, 0x7FF0000000000000, SIGNIFICAND),
}
"""By element type: the integers of its width, the bits of its exponent, and the number of its numbers' bits."""


def find_power(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Returns the power of two at or below the largest magnitude along `dims`; 0 of zeros, infinite where one is."""
    integers, exponent, _ = _EXPONENT[tensor.dtype]
    largest = torch.maximum(tensor.amax(tuple(dims), keepdim=True), -tensor.amin(tuple(dims), keepdim=True))
    return largest.view(integers).bitwise_and(exponent).view(tensor.dtype)


def compute_shift(power: Tensor, bits: int) -> Tensor:
    """Returns the number that, added and subtracted again in its own type, leaves multiples of 2 * power / 2**bits."""
    return power.mul_(3.0 * 2.0 ** (_EXPONENT[power.dtype][2] - 1 - bits))


def round_factor(tensor: Tensor, dim: int, bits: int, place: int = 0) -> Tensor:
    """Returns [m, k] or [rows, m, k] on a grid along `dim`, -1 or -2, in float64 and its own order in memory.

    It lies in scratch memory of this place.
    """
    if tensor.stride(-1) != 1 and tensor.stride(-2) == 1:
        return round_factor(tensor.mT, -3 - dim, bits, place).mT
    result = take(place, tensor.shape, tensor)
    flat, target = (tensor, result) if dim == -2 else (tensor.flatten(0, -2), result.flatten(0, -2))
    parts = _split(flat)
    block = torch.empty_like(parts[0])
    if tensor.is_meta:
        return result
    shift = compute_shift(find_power(flat, (dim,)), bits)
    shifts = torch.split(shift, len(block)) if len(shift) == len(flat) else repeat(shift)
    for part, by, rounded in zip(parts, shifts, torch.split(target, len(block)), strict=False):
        own = torch.add(part, by, out=block[: len(part)])
        rounded.copy_(own.sub_(by))
    return result


def count_factor_bits(depth: int) -> tuple[int, int]:
    """Returns the bits of left and right factors for which float64 adds `depth` products exactly."""
    spare = SIGNIFICAND - max(0, depth - 1).bit_length()
    return min(FACTOR_BITS, (spare + 1) // 2), min(FACTOR_BITS, spare // 2)


def count_term_bits(terms: int) -> int:
    """Returns the bits that each of `terms` terms may have in an exact sum."""
    return min(TERM_BITS, SIGNIFICAND - 1 - max(0, terms - 1).bit_length())


def round_terms(tensor: Tensor, dims: Sequence[int], terms: int) -> Tensor:
    """Returns float64 terms so that any sum of this many of them is exact."""
    shift = compute_shift(find_power(tensor, dims).to(torch.float64), count_term_bits(terms))
    return tensor.to(torch.float64, copy=True).add_(shift).sub_(shift)


def sum_exactly(tensor: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Returns float64 sums along `dims` (all where none is named), exact over the rounded terms."""
    if tensor.dim() == 0:
        return tensor.to(torch.float64)
    dims = tuple(range(tensor.dim())) if not dims else tuple(dim % tensor.dim() for dim in dims)
    if not tensor.numel():
        return tensor.to(torch.float64).sum(dims, keepdim=keepdim)
    terms, count, ordered = math.prod(tensor.shape[dim] for dim in dims), len(dims), sorted(dims)
    if tensor.is_contiguous() and ordered == list(range(count)):
        shape = [1] * count * keepdim + list(tensor.shape[count:])
        # the sums of [m, n] along its first dimension, block by block: all partial sums are exact
        rows = tensor.view(terms, -1)
        shift = compute_shift(find_power(rows, (0,)).to(torch.float64), count_term_bits(len(rows)))
        total = rows.new_zeros(rows.shape[1], dtype=torch.float64)
        for part in _split(rows):
            total.add_(part.to(torch.float64, copy=True).add_(shift).sub_(shift).sum(0))
            if rows.is_meta:
                break
        return total.view(shape)
    if tensor.is_contiguous() and ordered == list(range(tensor.dim() - count, tensor.dim())):
        shape = list(tensor.shape[:-count]) + [1] * count * keepdim
        # The sums of [m, n] along its last dimension
        rows = tensor.view(-1, terms)
        total = rows.new_empty(len(rows), dtype=torch.float64)
        for part, own in zip(_split(rows), _split(total, rows.shape[1]), strict=True):
            torch.sum(round_terms(part, (1,), rows.shape[1]), 1, out=own)
            if rows.is_meta:
                break
        return total.view(shape)
    return round_terms(tensor, dims, terms).sum(dims, keepdim=keepdim)


def _split(tensor: Tensor, size: int | None = None) -> Sequence[Tensor]:
    """Returns blocks of rows that stay in the cache, of `size` elements a row."""
    rows = BLOCK * torch.get_num_threads() // max(1, tensor[0].numel() if size is None else size)
    return torch.split(tensor, max(1, rows))


def multiply_exactly(left: Tensor, right: Tensor) -> Tensor:
    """Returns the float64 product of [m, k] and [k, n], or of [rows, m, k] and [rows, k, n], in scratch memory.

    Each factor is rounded to count_factor_bits below the largest of its row or column; no sum rounds within DEPTH.
    """
    depth = left.shape[-1]
    if not (depth and left.numel() and right.numel()):
        return left.new_zeros((*left.shape[:-1], right.shape[-1]), dtype=torch.float64)
    total = _multiply_part(left, right, 0, 2)
    for start in range(DEPTH, depth, DEPTH):
        total.add_(_multiply_part(left, right, start, 3))
        if total.is_meta:
            break
    return total


def _multiply_part(left: Tensor, right: Tensor, start: int, place: int) -> Tensor:
    """Returns the exact sums of the products from number `start` on, up to DEPTH of them, in scratch memory."""
    size, shape = min(DEPTH, left.shape[-1] - start), (*left.shape[:-1], right.shape[-1])
    bits, others = count_factor_bits(size)
    rows = round_factor(left.narrow(-1, start, size), -1, bits, 0)
    columns = round_factor(right.narrow(-2, start, size), -2, others, 1)
    out = take(place, shape, left)
    return torch.mm(rows, columns, out=out) if left.dim() == 2 else torch.bmm(rows, columns, out=out)
