"""Stochastic gradient descent with momentum (Sutskever et al. 2013, in the form of torch.optim.SGD without dampening).

g <- g + decay * p
m <- momentum * m + g
p <- p - lr * (g + momentum * m if nesterov else m)
"""

import numpy as np
from pydantic import Field, model_validator

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory, check, remembered, sweep


class Settings(optimizers.Settings):
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)
    nesterov: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov: it needs a momentum")
        return self


def start(parameters: Tensors, settings: Settings) -> Memory:
    """`momentum/<name>` for each parameter where there is momentum, else nothing."""
    if settings.momentum == 0.0:
        return {}
    return {f"momentum/{name}": np.zeros_like(parameter) for name, parameter in parameters.items()}


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    check(parameters, gradient)
    moved: dict[str, Vector] = {}
    kept: Memory = {}
    for name, parameter in parameters.items():
        decay, key = settings.decay(name), f"momentum/{name}"
        if settings.momentum == 0.0:
            (moved[name],) = sweep(_plain(lr, decay), 1, parameter, gradient[name])
        else:
            momentum = remembered(memory, key, parameter)
            kernel = _heavy(lr, decay, settings)
            moved[name], kept[key] = sweep(kernel, 2, parameter, gradient[name], momentum)
    return moved, kept


def _plain(lr: float, decay: float) -> Kernel:
    rate, shrink = np.float32(lr), np.float32(decay)

    def kernel(parameter: Vector, gradient: Vector) -> tuple[Vector, ...]:
        return (np.subtract(parameter, (gradient + parameter * shrink) * rate),)

    return kernel


def _heavy(lr: float, decay: float, settings: Settings) -> Kernel:
    rate, shrink, keep = np.float32(lr), np.float32(decay), np.float32(settings.momentum)

    def kernel(parameter: Vector, gradient: Vector, momentum: Vector) -> tuple[Vector, ...]:
        slope = gradient + parameter * shrink
        momentum = momentum * keep + slope
        direction = slope + momentum * keep if settings.nesterov else momentum
        return np.subtract(parameter, direction * rate), momentum

    return kernel
