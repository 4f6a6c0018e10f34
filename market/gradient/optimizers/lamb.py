"""LAMB: Adam whose step is as long as its tensor's norm allows (You et al. 2020, algorithm 2, phi the identity).

m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
u <- m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * p
p <- p - lr * |p| / |u| * u           |p| / |u| is 1 where either is 0

The norms are those of `norm`: the same bits on every machine.
"""

import math

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arithmetic import power
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.norm import norm
from gradmarket.market.gradient.optimizers import Kernel, Memory, check, moments, remembered, steps_of, sweep


class Settings(optimizers.Settings):
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-6, ge=1e-30, le=1.0)
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
        kernel = _kernel(settings.decay(name), steps, settings)
        update, kept[first], kept[second] = sweep(kernel, 3, parameter, gradient[name], *before)
        (moved[name],) = sweep(_against(lr * _trust(parameter, update)), 1, parameter, update)
    return moved, kept


def _kernel(decay: float, steps: int, settings: Settings) -> Kernel:
    scale, shrink = np.float32(1.0 - power(settings.beta1, steps)), np.float32(decay)
    spread, epsilon = np.float32(math.sqrt(1.0 - power(settings.beta2, steps))), np.float32(settings.epsilon)
    follow, remain, fresh = (np.float32(beta) for beta in (1 - settings.beta1, settings.beta2, 1 - settings.beta2))

    def kernel(parameter: Vector, gradient: Vector, first: Vector, second: Vector) -> tuple[Vector, ...]:
        first = first + (gradient - first) * follow
        second = second * remain + gradient * gradient * fresh
        return first / scale / (np.sqrt(second) / spread + epsilon) + parameter * shrink, first, second

    return kernel


def _trust(parameter: Vector, update: Vector) -> float:
    """|p| / |u|."""
    lengths = norm([parameter.reshape(-1)]), norm([update.reshape(-1)])
    return lengths[0] / lengths[1] if all(lengths) else 1.0


def _against(rate: float) -> Kernel:
    factor = np.float32(rate)

    def kernel(parameter: Vector, update: Vector) -> tuple[Vector, ...]:
        return (np.subtract(parameter, update * factor),)

    return kernel
