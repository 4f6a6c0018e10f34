"""Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, in the form of torch.optim.AdamW).

p <- p * (1 - lr * decay)
m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
"""

import math
from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.compiled import compile_loop
from gradmarket.market.gradient.optimizers import Memory, _adam, read_memory_array
from gradmarket.market.gradient.optimizers._adam import Answer, Settings, compute_power, start, steps_of

__all__ = ["ELEMENTWISE", "Settings", "start", "step", "step_fused", "steps_of"]

ELEMENTWISE: Final = True


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    def moved(name: str, steps: int) -> Answer:
        keep, rate = np.float32(1.0 - lr * settings.choose_weight_decay(name)), np.float32(lr / settings.bias(steps))
        return lambda parameter, mean, root: np.subtract(parameter * keep, mean / root * rate)

    return _adam.update_moments(parameters, gradient, memory, settings, moved)


def step_fused(
    name: str, parameter: Vector, gradient: Vector, memory: Arrays, lr: float, settings: Settings, after: Vector
) -> Arrays:
    steps = steps_of(memory) + 1
    first, second = (read_memory_array(memory, f"{moment}/{name}", parameter) for moment in ("first", "second"))
    spread = math.sqrt(1.0 - compute_power(settings.beta2, steps))
    numbers = (
        *(1.0 - settings.beta1, settings.beta2, 1.0 - settings.beta2, spread, settings.epsilon),
        *(1.0 - lr * settings.choose_weight_decay(name), lr / settings.bias(steps)),
    )
    _step_at_once(parameter, gradient, first, second, after, *map(np.float32, numbers))
    return {"steps": np.array(steps, np.int64)}


@compile_loop
def _step_at_once(
    parameter: Any,
    gradient: Any,
    first: Any,
    second: Any,
    after: Any,
    follow: Any,
    remain: Any,
    fresh: Any,
    spread: Any,
    epsilon: Any,
    keep: Any,
    rate: Any,
) -> None:
    for place in range(parameter.size):
        slope = gradient[place]
        mean = first[place] + (slope - first[place]) * follow
        square = second[place] * remain + slope * slope * fresh
        root = np.sqrt(square) / spread + epsilon
        after[place] = parameter[place] * keep - mean / root * rate
        first[place] = mean
        second[place] = square
