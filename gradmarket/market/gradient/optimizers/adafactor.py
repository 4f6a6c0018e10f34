"""Adafactor: a matrix's squares by its rows and columns (Shazeer and Stern 2018, as torch.optim.Adafactor has it).

b <- t^-power;   r <- r + b * (mean of g^2 over columns - r);   c likewise over rows;   v <- r c / mean of r
u <- g / sqrt(max(v * min(1, mean of r / epsilon), epsilon^2))          a vector's v is its own running mean
p <- p - lr * decay * p
p <- p - min(lr, t^-0.5) * max(least, |p|) / max(1, |u| / longest) * u  |.| is the root of the mean square

A tensor of more than two dimensions is a stack of matrices, as in torch. The memory is v, whose means are r and c: of
the parameter's shape, as every optimizer's here, it saves none of the bytes that Adafactor is known for.
Means are sums of halves, norms and powers those of `norm` and `arithmetic`: the same bits on every machine.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.gradient.optimizers import Memory, check_gradient, read_memory_array
from gradmarket.market.gradient.optimizers._adam import steps_of

ELEMENTWISE: Final = False
GREATEST: Final = float(np.finfo(np.float32).max)
SCRATCH_BYTES: Final = 48
"""For each element: arrays of float64, and halves of them."""
LOG_2: Final = 0.6931471805599453
LOG_TERMS, EXP_TERMS = 20, 18
"""Terms of the logarithm's series in z^2 <= 1/9, and of the exponential's on [-0.35, 0.35]: later ones are < 1e-18."""
Doubles = NDArray[np.float64]


class Settings(optimizers.Settings):
    power: float = Field(default=0.8, ge=0.0, le=1.0)
    epsilon: float = Field(default=2.0**-23, ge=1e-30, le=1.0)
    least: float = Field(default=1e-3, ge=0.0, le=1.0)
    longest: float = Field(default=1.0, ge=1.0, le=1e6)

    def count_scratch_bytes(self, name: str, shape: tuple[int, ...]) -> int:  # noqa: ARG002
        return SCRATCH_BYTES * math.prod(shape)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """Returns `squares/<name>`, zeros, for each parameter, and `steps`, a scalar int64."""
    squares = {f"squares/{name}": np.zeros_like(parameter) for name, parameter in parameters.items()}
    return {"steps": np.zeros((), np.int64), **squares}


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    check_gradient(parameters, gradient)
    steps = steps_of(memory) + 1
    moved: dict[str, Vector] = {}
    kept: Memory = {"steps": np.array(steps, np.int64)}
    fresh = compute_real_power(steps, -settings.power)
    for name, parameter in parameters.items():
        before, slope = read_memory_array(memory, f"squares/{name}", parameter), gradient[name]
        factored = slope.ndim > 1 and slope.size > 0
        squares, divisors = (_follow_means if factored else _follow_squares)(before, slope, fresh, settings.epsilon)
        kept[f"squares/{name}"] = np.minimum(squares, GREATEST).astype(np.float32)
        update = (slope / np.sqrt(np.maximum(divisors, settings.epsilon**2))).astype(np.float32)
        rate = min(lr, 1.0 / math.sqrt(steps)) * max(settings.least, _compute_root_mean_square(parameter))
        rate /= max(1.0, _compute_root_mean_square(update) / settings.longest)
        keep = np.float32(1.0 - lr * settings.choose_weight_decay(name))
        moved[name] = np.subtract(parameter * keep, update * np.float32(rate))
    return moved, kept


def _follow_squares(before: Vector, slope: Vector, fresh: float, _: float) -> tuple[Doubles, Doubles]:
    """Returns the running mean of squares, twice: as the memory and as the divisors' squares."""
    old = before.astype(np.float64)
    squares = old + (np.square(slope.astype(np.float64)) - old) * fresh
    return squares, squares


def _follow_means(before: Vector, slope: Vector, fresh: float, epsilon: float) -> tuple[Doubles, Doubles]:
    """Returns v after the step, by its means over rows and columns, and the divisors' squares."""
    old, new = before.astype(np.float64), np.square(slope.astype(np.float64))
    rows, columns = (_mean(old, axis) + (_mean(new, axis) - _mean(old, axis)) * fresh for axis in (-1, -2))
    mean = _mean(rows, -2)
    squares = rows * columns / np.maximum(mean, np.finfo(np.float64).tiny)
    return squares, squares * np.minimum(mean / epsilon, 1.0)


def _mean(array: Doubles, axis: int) -> Doubles:
    """Returns the mean over an axis, which stays with length 1; halves are added elementwise until one is left."""
    left = np.moveaxis(array, axis, 0)
    while len(left) > 1:
        half = (len(left) + 1) // 2
        added = left[:half].copy()
        added[: len(left) - half] += left[half:]
        left = added
    mean: Doubles = np.moveaxis(left, 0, axis) / array.shape[axis]
    return mean


def _compute_root_mean_square(tensor: Vector) -> float:
    return compute_norm([tensor.reshape(-1)]) / math.sqrt(max(1, tensor.size))


def compute_real_power(base: float, exponent: float) -> float:
    """Returns `base ** exponent` for base > 0, from additions and products alone: the same bits on every machine.

    Its relative error is within 1e-14 for results from 1e-6 to 1e6.
    """
    fraction, twos = math.frexp(base)
    ratio = (fraction - 1.0) / (fraction + 1.0)
    log, square = 0.0, ratio * ratio
    for term in range(LOG_TERMS - 1, -1, -1):
        log = log * square + 1.0 / (2 * term + 1)
    power = exponent * (twos * LOG_2 + 2.0 * ratio * log)
    halvings = round(power / LOG_2)
    rest, result = power - halvings * LOG_2, 1.0
    for term in range(EXP_TERMS, 0, -1):
        result = 1.0 + result * rest / term
    return math.ldexp(result, halvings)
