"""Sums whose every partial sum is exact, so that no order, thread or fused multiply-add changes their bits.

Terms are rounded to multiples of one step, small enough in number of bits that float64 holds each partial sum: the
pre-rounding of Demmel and Nguyen ("Parallel reproducible summation", 2015, IEEE Trans. Comput. 64(7)), and for products
the error-free splitting of Ozaki et al. (2012, Numer. Algorithms 59), of which the leading slice alone is taken.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

SIGNIFICAND: Final = 53
FACTOR_BITS: Final = 22
"""Bits of a factor of a product, counted from the power of two above the largest of its row (or column)."""
DEPTH: Final = 2 ** (SIGNIFICAND - 2 * FACTOR_BITS)
"""Products in a sum that float64 holds: longer rows are cut, and the parts added in order."""
TERM_BITS: Final = 45
"""Most bits of a term of a sum: a float32 loses none of them within 2**21 of the largest."""
_EXPONENT: Final = {
    torch.float32: (torch.int32, 0x7F800000, 24),
    torch.float64: (torch.int64, 0x7FF0000000000000, SIGNIFICAND),
}
"""By element type: the integers of its width, the bits of its exponent, and how many bits its numbers have."""


def round_to_grid(tensor: Tensor, dims: Sequence[int], bits: int) -> Tensor:
    """Returns multiples of one step: 2**-bits of the power of two above the largest magnitude along `dims`.

    Rounds to the nearest, ties to even (Rump, Ogita, Oishi 2008, SIAM J. Sci. Comput. 31, ExtractScalar), in the
    tensor's own type, which has two bits more. What is not finite makes all of its row NaN.
    """
    integers, exponent, width = _EXPONENT[tensor.dtype]
    largest = torch.maximum(tensor.amax(tuple(dims), keepdim=True), -tensor.amin(tuple(dims), keepdim=True))
    below = largest.view(integers).bitwise_and(exponent).view(tensor.dtype)
    shift = below.mul_(3.0 * 2.0 ** (width - 1 - bits))
    return (tensor + shift).sub_(shift)


def count_term_bits(terms: int) -> int:
    """Returns the bits that each of so many terms may have in an exact sum."""
    return min(TERM_BITS, SIGNIFICAND - 1 - max(0, terms - 1).bit_length())


def round_terms(tensor: Tensor, dims: Sequence[int], terms: int) -> Tensor:
    """Returns float64 terms so that any sum of this many of them is exact."""
    return round_to_grid(tensor.to(torch.float64), dims, count_term_bits(terms))


def sum_exactly(tensor: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Returns float64 sums along `dims` (all where none is named), exact over the rounded terms."""
    if tensor.dim() == 0:
        return tensor.to(torch.float64)
    dims = tuple(range(tensor.dim())) if not dims else tuple(dim % tensor.dim() for dim in dims)
    if not tensor.numel():
        return tensor.to(torch.float64).sum(dims, keepdim=keepdim)
    return round_terms(tensor, dims, math.prod(tensor.shape[dim] for dim in dims)).sum(dims, keepdim=keepdim)


def multiply_exactly(left: Tensor, right: Tensor) -> Tensor:
    """Returns the float64 product of [..., m, k] and [..., k, n] of the same leading dimensions.

    Each factor is rounded to FACTOR_BITS bits below the largest of its row or column; no sum rounds within DEPTH.
    """
    depth = left.shape[-1]
    if not (depth and left.numel() and right.numel()):
        depth = 0
    total = left.new_zeros((*left.shape[:-1], right.shape[-1]), dtype=torch.float64)
    for start in range(0, depth, DEPTH):
        size = min(DEPTH, depth - start)
        rows = round_to_grid(left.narrow(-1, start, size), (-1,), FACTOR_BITS).to(torch.float64)
        columns = round_to_grid(right.narrow(-2, start, size), (-2,), FACTOR_BITS).to(torch.float64)
        part = rows.matmul(columns)
        total = total.add_(part) if start else part
        if total.is_meta:
            break
    return total
