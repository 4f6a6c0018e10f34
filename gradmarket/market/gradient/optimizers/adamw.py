"""Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, in the form of torch.optim.AdamW).

p <- p * (1 - lr * decay)
m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
"""

from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Memory, _adam
from gradmarket.market.gradient.optimizers._adam import Answer, Settings, start, steps_of

__all__ = ["ELEMENTWISE", "Settings", "start", "step", "steps_of"]

ELEMENTWISE: Final = True


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    def moved(name: str, steps: int) -> Answer:
        keep, rate = np.float32(1.0 - lr * settings.choose_weight_decay(name)), np.float32(lr / settings.bias(steps))
        return lambda parameter, mean, root: np.subtract(parameter * keep, mean / root * rate)

    return _adam.update_moments(parameters, gradient, memory, settings, moved)
