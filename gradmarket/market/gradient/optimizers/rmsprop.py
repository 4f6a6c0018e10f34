"""RMSprop (Hinton 2012, lecture 6e of "Neural Networks for Machine Learning", in the form of torch.optim.RMSprop).

g <- g + decay * p
v <- alpha * v + (1 - alpha) * g^2
m <- momentum * m + g / (sqrt(v) + epsilon)
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
    alpha: float = Field(default=0.99, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-8, ge=1e-30, le=1.0)
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:
    """Returns `squares/<name>`, and with a momentum `momentum/<name>`, zeros, for each parameter."""
    return build_zeros(parameters, _list_memory_keys(settings))


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    rate, epsilon, share = map(np.float32, (lr, settings.epsilon, settings.momentum))
    remain, fresh = np.float32(settings.alpha), np.float32(1.0 - settings.alpha)

    def kernel_of(name: str) -> Kernel:
        shrink = np.float32(settings.choose_weight_decay(name))

        def kernel(parameter: Vector, gradient: Vector, before: Vector, *momentum: Vector) -> tuple[Vector, ...]:
            slope = gradient + parameter * shrink
            squares = before * remain + slope * slope * fresh
            update = slope / np.add(np.sqrt(squares), epsilon)
            after = [old * share + update for old in momentum]
            return np.subtract(parameter, (after[0] if after else update) * rate), squares, *after

        return kernel

    return step_tensors(parameters, gradient, memory, _list_memory_keys(settings), kernel_of)


def _list_memory_keys(settings: Settings) -> tuple[str, ...]:
    return ("squares", "momentum") if settings.momentum else ("squares",)
