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
from gradmarket.market.gradient.optimizers import Kernel, Memory, apply_kernel, check_gradient, read_memory_array

ELEMENTWISE: Final = True


class Settings(optimizers.Settings):
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:
    """Returns `momentum/<name>`, zeros, for each parameter; nothing where there is no momentum."""
    if settings.momentum == 0.0:
        return {}
    return {f"momentum/{name}": np.zeros_like(parameter) for name, parameter in parameters.items()}


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    check_gradient(parameters, gradient)
    moved: dict[str, Vector] = {}
    kept: Memory = {}
    for name, parameter in parameters.items():
        decay, key = settings.choose_weight_decay(name), f"momentum/{name}"
        if settings.momentum == 0.0:
            (moved[name],) = apply_kernel(_build_plain_kernel(lr, decay), 1, parameter, gradient[name])
        else:
            momentum = read_memory_array(memory, key, parameter)
            kernel = _build_momentum_kernel(lr, decay, settings.momentum)
            moved[name], kept[key] = apply_kernel(kernel, 2, parameter, gradient[name], momentum)
    return moved, kept


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
