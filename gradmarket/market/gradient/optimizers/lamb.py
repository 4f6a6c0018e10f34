"""LAMB: Adam whose step is as long as its tensor's norm allows (You et al. 2020, algorithm 2, phi the identity).

m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
u <- m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * p
p <- p - lr * |p| / |u| * u           |p| / |u| is 1 where either is 0

The norms are those of `norm`: the same bits on every machine.
"""

from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.gradient.optimizers import Memory, _adam, apply_kernel
from gradmarket.market.gradient.optimizers._adam import Answer, start

__all__ = ["ELEMENTWISE", "Settings", "start", "step"]

ELEMENTWISE: Final = False
GREATEST: Final = float(np.finfo(np.float32).max)
"""The greatest rate: near the least float32, a greater one would make updates infinite, and 0 times infinity is NaN."""


class Settings(_adam.Settings):
    epsilon: float = Field(default=1e-6, ge=1e-30, le=1.0)


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    def update(name: str, steps: int) -> Answer:
        scale, shrink = np.float32(settings.bias(steps)), np.float32(settings.choose_weight_decay(name))
        return lambda parameter, mean, root: mean / scale / root + parameter * shrink

    updates, kept = _adam.update_moments(parameters, gradient, memory, settings, update)
    return {name: _move_parameter(parameter, updates[name], lr) for name, parameter in parameters.items()}, kept


def _move_parameter(parameter: Vector, update: Vector, lr: float) -> Vector:
    # |p| / |u|, and 1 where either is 0
    lengths = compute_norm([parameter.reshape(-1)]), compute_norm([update.reshape(-1)])
    trust_ratio: float = lengths[0] / lengths[1] if all(lengths) else 1.0
    factor = np.float32(min(lr * trust_ratio, GREATEST))

    def kernel(parameter: Vector, update: Vector) -> tuple[Vector, ...]:
        return (np.subtract(parameter, update * factor),)

    (moved,) = apply_kernel(kernel, 1, parameter, update)
    return moved
