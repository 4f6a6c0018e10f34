"""Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, in the form of torch.optim.AdamW).

p <- p * (1 - lr * decay)
m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
"""

import math

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arithmetic import power
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory, check, moments, remembered, steps_of, sweep


class Settings(optimizers.Settings):
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-8, ge=1e-30, le=1.0)
    weight_decay: float = Field(default=0.01, ge=0.0, le=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """`first/<name>` and `second/<name>`, the moments of each parameter's gradient, and `steps`, a scalar int64."""
    return moments(parameters)


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    check(parameters, gradient)
    steps = steps_of(memory) + 1
    moved: dict[str, Vector] = {}
    kept: Memory = {"steps": np.array(steps, np.int64)}
    for name, parameter in parameters.items():
        first, second = f"first/{name}", f"second/{name}"
        before = remembered(memory, first, parameter), remembered(memory, second, parameter)
        kernel = _kernel(lr, settings.decay(name), steps, settings)
        moved[name], kept[first], kept[second] = sweep(kernel, 3, parameter, gradient[name], *before)
    return moved, kept


def _kernel(lr: float, decay: float, steps: int, settings: Settings) -> Kernel:
    keep, rate = np.float32(1.0 - lr * decay), np.float32(lr / (1.0 - power(settings.beta1, steps)))
    spread, epsilon = np.float32(math.sqrt(1.0 - power(settings.beta2, steps))), np.float32(settings.epsilon)
    follow, remain, fresh = (np.float32(beta) for beta in (1 - settings.beta1, settings.beta2, 1 - settings.beta2))

    def kernel(parameter: Vector, gradient: Vector, first: Vector, second: Vector) -> tuple[Vector, ...]:
        first = first + (gradient - first) * follow
        second = second * remain + gradient * gradient * fresh
        change = first / (np.sqrt(second) / spread + epsilon) * rate
        return np.subtract(parameter * keep, change), first, second

    return kernel
