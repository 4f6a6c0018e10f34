"""Adam (Kingma and Ba 2015, algorithm 1, in the form of torch.optim.Adam): weight decay is added to the gradient.

g <- g + decay * p
m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)

Without a decay its steps are AdamW's, to the bit.
"""

from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory, _adam, apply_kernel, check_gradient
from gradmarket.market.gradient.optimizers._adam import Answer, start

__all__ = ["ELEMENTWISE", "Settings", "start", "step"]

ELEMENTWISE: Final = True


class Settings(_adam.Settings):
    weight_decay: float = Field(default=0.0, ge=0.0, le=1.0)


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    def moved(_name: str, steps: int) -> Answer:
        rate = np.float32(lr / settings.bias(steps))
        return lambda parameter, mean, root: np.subtract(parameter, mean / root * rate)

    check_gradient(parameters, gradient)
    slopes = {
        name: apply_kernel(_build_decay_kernel(decay), 1, gradient[name], parameter)[0]
        if (decay := settings.choose_weight_decay(name))
        else gradient[name]
        for name, parameter in parameters.items()
    }
    return _adam.update_moments(parameters, slopes, memory, settings, moved)


def _build_decay_kernel(decay: float) -> Kernel:
    shrink = np.float32(decay)

    def kernel(gradient: Vector, parameter: Vector) -> tuple[Vector, ...]:
        return (np.add(gradient, parameter * shrink),)

    return kernel
