"""Freivalds' check (1979) of a reproducible product, exactly: it is a sum in which nothing is rounded.

Let step_i be the grid of row i of the left factor and step_j that of column j of the right one. Then the factors are
integer matrices A and B, and the float64 product (exact.multiply_exactly) is step_i step_j N_ij with N = A B. For r
drawn uniformly from 0 to 2^s - 1, N r = A (B r) costs three products by a vector.

Complete: every honest product passes. Sound: if row i of N - A B has an element j that is not 0, then for each choice
of the other r at most one r_j of 2^s makes that row vanish. So a wrong product passes with probability at most 2^-s a
round, over r drawn after the product is fixed, whatever the error: one step is found as an error of any size is.

Every sum is exact in float64, which holds 53 bits: |A|, |B| <= 2^22, |N| <= 2^53 is cut into a low part of 27 bits and
a high one, s = 26 - log2 n rounded down, and B r is cut into digits of 20 bits before A, of up to 2^11 columns.

In floating point the product is no A B of any ring: there benchmarks.rig.freivalds has a tolerance.
"""

from typing import Final

import torch
from blake3 import blake3
from torch import Tensor

from graphdoc.errors import Refused
from graphdoc.reproducible.exact import BLOCK, DEPTH, SIGNIFICAND, count_factor_bits, find_power, round_factor

LOW: Final = 27
"""Bits of the low part of a product's number of steps."""
DIGIT: Final = 20
ROUNDS: Final = 2
"""Accepts a wrong product of up to 2,048 columns with probability at most 2^-30."""


def check_exact_product(
    left: Tensor, right: Tensor, product: Tensor, seed: bytes, rounds: int = ROUNDS, bits: int = LOW
) -> bool:
    """Returns whether float64 `product` [m, n] is the exact one of float32 left [m, k] and right [k, n].

    `seed` must be drawn after the product is fixed; `bits` are the most of a drawn number. Raises Refused where k is
    more than DEPTH, for then the product is a rounded sum of several, and where a factor is not finite.
    """
    depth, columns = right.shape
    if depth > DEPTH:
        raise Refused(f"a product of rows of {depth} is a rounded sum: check it by parts of {DEPTH}")
    own, others = count_factor_bits(depth)
    row_steps, column_steps = _find_steps(left, -1, own), _find_steps(right, -2, others)
    drawn = draw_numbers(columns, rounds, min(bits, SIGNIFICAND - LOW - max(0, columns - 1).bit_length()), seed)
    claimed = _multiply_claimed(product, 1 / row_steps, 1 / column_steps, drawn)
    if claimed is None:
        return False
    steps = round_factor(right, -2, others) @ (drawn / column_steps.view(-1, 1))
    rows = round_factor(left, -1, own)
    sums = [0] * claimed[0].numel()
    for place in range(3):
        above = (steps * 2.0**-DIGIT).floor_() if place < 2 else torch.zeros_like(steps)
        found = rows @ (steps - above * 2.0**DIGIT) / row_steps
        sums = [one + (int(two) << DIGIT * place) for one, two in zip(sums, found.view(-1).tolist(), strict=True)]
        steps = above
    low, high = (part.view(-1).tolist() for part in claimed)
    return sums == [int(one) + (int(two) << LOW) for one, two in zip(low, high, strict=True)]


def _multiply_claimed(
    product: Tensor, by_row: Tensor, by_column: Tensor, drawn: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Returns low and high parts of the product's numbers of steps times the draws; None where they are none."""
    lows, highs = [], []
    size = max(1, BLOCK // product.shape[1])
    for part, scale in zip(torch.split(product, size), torch.split(by_row, size), strict=True):
        whole = (part * by_column).mul_(scale)
        high = (whole * 2.0**-LOW).floor_()
        if not (torch.equal(whole, whole.round()) and float(high.abs().amax()) <= 2.0 ** (SIGNIFICAND - LOW)):
            return None
        lows.append(whole.sub_(high, alpha=2**LOW) @ drawn)
        highs.append(high @ drawn)
    return torch.cat(lows), torch.cat(highs)


def _find_steps(factor: Tensor, dim: int, bits: int) -> Tensor:
    """Returns the steps of the factor's rows (or columns) as float64; 1 where all of it is 0."""
    power = find_power(factor, (dim,)).to(torch.float64)
    if not bool(power.isfinite().all()):
        raise Refused("a factor is not finite: its product tells nothing of it")
    steps: Tensor = torch.where(power == 0.0, 1.0, power * 2.0 ** (1 - bits))
    return steps


def draw_numbers(count: int, rounds: int, bits: int, seed: bytes) -> Tensor:
    """Returns float64 [count, rounds] of whole numbers below 2^bits, each from 32 bits of blake3 of the seed."""
    stream = bytearray(blake3(seed, derive_key_context="gradmarket freivalds numbers").digest(4 * count * rounds))
    numbers: Tensor = torch.frombuffer(stream, dtype=torch.int32) & (2**bits - 1)
    return numbers.view(count, rounds).to(torch.float64)
