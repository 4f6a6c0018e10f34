"""Functions rounded correctly to float32: each has one such result, so every library with a small error gives the same.

By Ziv's test (1991, ACM Trans. Math. Softw. 17): float64 gives a value whose relative error is far below 2**-48. Where
both ends of that interval round to one float32, that is it; elsewhere, of one element in some millions, 100 digits
decide (digits).
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from functools import partial
from typing import Final

import torch
from torch import Tensor

from graphdoc.reproducible.digits import evaluate_decimal

ERROR: Final = 2.0**-48
"""Sixteen units in the last place of float64; torch's functions are wrong by at most four (SLEEF, MKL, glibc, CUDA)."""
CHUNK: Final = 2**15
"""Elements that are computed at once on each thread, so that intermediate values stay in the cache."""
NEAR: Final[Mapping[str, Callable[..., Tensor]]] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "pow": torch.pow,
}


def compute_in_blocks(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """Returns an elementwise function of float32 arguments of one shape, computed block by block in the cache."""

    def fill(parts: Sequence[Tensor], result: Tensor) -> None:
        result.copy_(function(*parts))

    return _fill_blocks(fill, arguments)


def compute_function(name: str, *arguments: Tensor) -> Tensor:
    """Returns NEAR's function of float32 arguments of one shape, rounded to the nearest float32."""
    return _fill_blocks(partial(_fill_part, name), arguments)


def _fill_blocks(fill: Callable[[Sequence[Tensor], Tensor], None], arguments: Sequence[Tensor]) -> Tensor:
    flat = [argument.contiguous().view(-1) for argument in arguments]
    result, size = torch.empty_like(flat[0]), CHUNK * torch.get_num_threads()
    if result.numel() <= size:
        fill(flat, result)
        return result.view(arguments[0].shape)
    for *parts, own in zip(*(torch.split(each, size) for each in (*flat, result)), strict=True):
        fill(parts, own)
        if result.is_meta:
            break
    return result.view(arguments[0].shape)


def _fill_part(name: str, arguments: Sequence[Tensor], result: Tensor) -> None:
    near = NEAR[name](*(argument.to(torch.float64) for argument in arguments))
    result.copy_(near * (1.0 - ERROR))
    other = near.mul_(1.0 + ERROR).to(torch.float32)
    if result.is_meta or torch.equal(result, other):
        return
    for place in ((result != other) & (result == result)).nonzero().view(-1).tolist():
        values = [float(argument[place]) for argument in arguments]
        result[place] = choose_nearest(name, values, float(result[place]), float(other[place]))


def choose_nearest(name: str, arguments: list[float], one: float, other: float) -> float:
    """Returns the one of two neighbours in float32 that is nearer to the function's value; of a tie the even one."""
    with localcontext() as context:
        context.prec = 200
        above = evaluate_decimal(name, *arguments) - (Decimal(one) + Decimal(other)) / 2
    if above == 0:
        return one if int(torch.tensor(one, dtype=torch.float32).view(torch.int32)) % 2 == 0 else other
    return max(one, other) if above > 0 else min(one, other)
