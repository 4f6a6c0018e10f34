"""LARS: momentum whose rate is set for each tensor by its norms (You, Gitman and Ginsburg 2017, algorithm 1).

rate <- trust * |p| / (|g| + decay * |p|)          trust where |p| or the divisor is 0
m <- momentum * m + lr * rate * (g + decay * p)
p <- p - m

The paper takes trust 0.001, momentum 0.9 and decay 0.0005, a linear warm-up, and a polynomial schedule of power 2. The
norms are those of `norm`: the same bits on every machine.
"""

from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.gradient.optimizers import Kernel, Memory
from gradmarket.market.gradient.optimizers._tensor_steps import build_zeros, step_tensors

ELEMENTWISE: Final = False
GREATEST: Final = float(np.finfo(np.float32).max)
"""The greatest rate: near the least float32, a greater one could give infinite gradients, and 0 times infinity is
NaN."""


class Settings(optimizers.Settings):
    momentum: float = Field(default=0.9, ge=0.0, lt=1.0)
    trust: float = Field(default=0.001, gt=0.0, le=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """Returns `momentum/<name>`, zeros, for each parameter."""
    return build_zeros(parameters, ["momentum"])


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    def kernel_of(name: str) -> Kernel:
        decay = settings.choose_weight_decay(name)
        length, slope = (compute_norm([tensors[name].reshape(-1)]) for tensors in (parameters, gradient))
        divisor = slope + decay * length
        rate = lr * settings.trust * (length / divisor if length and divisor else 1.0)
        factor, shrink, keep = np.float32(min(rate, GREATEST)), np.float32(decay), np.float32(settings.momentum)

        def kernel(parameter: Vector, gradient: Vector, before: Vector) -> tuple[Vector, ...]:
            slope = gradient + parameter * shrink
            after = np.add(before * keep, slope * factor)
            return np.subtract(parameter, after), after

        return kernel

    return step_tensors(parameters, gradient, memory, ["momentum"], kernel_of)
