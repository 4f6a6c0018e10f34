"""Stochastic gradient descent with momentum (Polyak 1964, in the form of torch.optim.SGD without dampening).

g <- g + decay * p
m <- momentum * m + g
p <- p - lr * m
"""

from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory
from gradmarket.market.gradient.optimizers._tensor_steps import build_zeros, step_tensors

ELEMENTWISE: Final = True


class Settings(optimizers.Settings):
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:
    """Returns `momentum/<name>`, zeros, for each parameter; nothing where there is no momentum."""
    return build_zeros(parameters, ["momentum"] if settings.momentum else [])


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    rate, keep = np.float32(lr), np.float32(settings.momentum)

    def kernel_of(name: str) -> Kernel:
        shrink = np.float32(settings.choose_weight_decay(name))

        def kernel(parameter: Vector, gradient: Vector, *momentum: Vector) -> tuple[Vector, ...]:
            slope = gradient + parameter * shrink
            after = [old * keep + slope for old in momentum]
            return np.subtract(parameter, (after[0] if after else slope) * rate), *after

        return kernel

    return step_tensors(parameters, gradient, memory, ["momentum"] if settings.momentum else [], kernel_of)
