"""Lion (Chen et al. 2023, https://arxiv.org/abs/2302.06675, algorithm 2): a step is the sign of a mean of gradients.

p <- p * (1 - lr * decay)
p <- p - lr * sign(beta1 * m + (1 - beta1) * g)             an element where both are 0 stays
m <- beta2 * m + (1 - beta2) * g

Every element moves by the rate, so the paper takes a rate 3 to 10 times less than AdamW's, and a decay as much greater.
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
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.99, ge=0.0, lt=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """Returns `momentum/<name>`, zeros, for each parameter."""
    return build_zeros(parameters, ["momentum"])


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    rate = np.float32(lr)
    old, new, remain, fresh = (
        np.float32(share) for beta in (settings.beta1, settings.beta2) for share in (beta, 1.0 - beta)
    )

    def kernel_of(name: str) -> Kernel:
        keep = np.float32(1.0 - lr * settings.choose_weight_decay(name))

        def kernel(parameter: Vector, gradient: Vector, before: Vector) -> tuple[Vector, ...]:
            way = np.sign(before * old + gradient * new)
            return np.subtract(parameter * keep, way * rate), before * remain + gradient * fresh

        return kernel

    return step_tensors(parameters, gradient, memory, ["momentum"], kernel_of)
