"""Freivalds' check of a product of matrices in floating point: C against A B without computing A B.

Freivalds 1979: for random r of signs, C r = A (B r) costs three products by a vector, and a wrong C passes with
probability at most 1/2 a round. In floating point C is not A B but within gamma_k |A| |B| of it, element by element
(graphdoc.tracing.rounding), so row i of C r - A (B r) is at most t_i = gamma_k (|A| (|B| 1))_i for every honest C and
every r. A product is accepted where no row of any round is beyond its t_i.

Sound: if an element of row i of C - A B is beyond t_i, either sign of its r_j alone moves the row's sum by more than
2 t_i, so at most one of the two is accepted: each round accepts with probability at most 1/2, and all of them with
2^-rounds, over r drawn after C is fixed. Complete: an honest product always passes.

It does not detect an error below t_i, which is as large as the bounds of a whole row of C together: it bounds elements
some n times more loosely than `rounding` does. Modulo a prime, where Freivalds is exact, it is of no use here: C is
rounded, and equals A B in no ring.
"""

from typing import Final

import torch
from blake3 import blake3
from torch import Tensor

from graphdoc.tracing.rounding import EXACT_UNIT, SMALLEST, UNIT

ROUNDS: Final = 20
"""Accepts a wrong product with probability at most 2^-20."""


def check_product(left: Tensor, right: Tensor, product: Tensor, seed: bytes, rounds: int = ROUNDS) -> bool:
    """Returns whether `product` [m, n] may be left [m, k] @ right [k, n] in float32, in any order of summation.

    `seed` must be drawn after the product is fixed.
    """
    signs = draw_signs(right.shape[1], rounds, seed)
    a, b, c = left.double(), right.double(), product.double()
    count = left.shape[1] + 1
    gamma = count * UNIT / (1 - count * UNIT)
    whole = a.abs() @ b.abs().sum(1)
    exact = 4 * (count + right.shape[1]) * EXACT_UNIT * (whole + c.abs().sum(1))
    limit = gamma * whole + exact + count * right.shape[1] * SMALLEST
    difference = (c @ signs - a @ (b @ signs)).abs().amax(1)
    return bool((difference <= limit).all())


def draw_signs(count: int, rounds: int, seed: bytes) -> Tensor:
    """Returns float64 [count, rounds] of 1 and -1, each a bit of blake3 of the seed."""
    stream = bytearray(blake3(seed, derive_key_context="gradmarket freivalds signs").digest(-(-count * rounds // 8)))
    bits = torch.frombuffer(stream, dtype=torch.uint8).unsqueeze(1).bitwise_right_shift(torch.arange(8)) & 1
    return bits.reshape(-1)[: count * rounds].reshape(count, rounds).double() * 2 - 1
