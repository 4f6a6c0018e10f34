"""Adagrad (Duchi, Hazan and Singer 2011, in the form of torch.optim.Adagrad without a rate decay: a schedule is one).

g <- g + decay * p
s <- s + g^2                                               s starts at `initial`
p <- p - lr * g / (sqrt(s) + epsilon)
"""

from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory
from gradmarket.market.gradient.optimizers._tensor_steps import step_tensors

ELEMENTWISE: Final = True


class Settings(optimizers.Settings):
    epsilon: float = Field(default=1e-10, ge=1e-30, le=1.0)
    initial: float = Field(default=0.0, ge=0.0, le=1e6)


def start(parameters: Tensors, settings: Settings) -> Memory:
    """Returns `squares/<name>`, each `initial`, for each parameter."""
    return {
        f"squares/{name}": np.full_like(parameter, settings.initial, order="C")
        for name, parameter in parameters.items()
    }


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    rate, epsilon = np.float32(lr), np.float32(settings.epsilon)

    def kernel_of(name: str) -> Kernel:
        shrink = np.float32(settings.choose_weight_decay(name))

        def kernel(parameter: Vector, gradient: Vector, before: Vector) -> tuple[Vector, ...]:
            slope = gradient + parameter * shrink
            squares = before + slope * slope
            return np.subtract(parameter, slope / np.add(np.sqrt(squares), epsilon) * rate), squares

        return kernel

    return step_tensors(parameters, gradient, memory, ["squares"], kernel_of)
