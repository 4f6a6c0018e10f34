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
    def kernel_of(name: str) -> Kernel:
        decay = settings.choose_weight_decay(name)
        if settings.momentum == 0.0:
            return _build_plain_kernel(lr, decay)
        return _build_momentum_kernel(lr, decay, settings.momentum)

    return step_tensors(parameters, gradient, memory, ["momentum"] if settings.momentum else [], kernel_of)


def _build_plain_kernel(lr: float, decay: float) -> Kernel:
    rate, shrink = np.float32(lr), np.float32(decay)

    def kernel(parameter: Vector, gradient: Vector) -> tuple[Vector, ...]:
        return (np.subtract(parameter, (gradient + parameter * shrink) * rate),)

    return kernel


def _build_momentum_kernel(lr: float, decay: float, share: float) -> Kernel:
    rate, shrink, keep = np.float32(lr), np.float32(decay), np.float32(share)

    def kernel(parameter: Vector, gradient: Vector, momentum: Vector) -> tuple[Vector, ...]:
        momentum = momentum * keep + (gradient + parameter * shrink)
        return np.subtract(parameter, momentum * rate), momentum

    return kernel
