"""The part that Adam and its variants share (Kingma and Ba 2015, algorithm 1): running means of gradients and squares.

m <- m + (1 - beta1) * (g - m);       v <- beta2 * v + (1 - beta2) * g^2
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from pydantic import Field

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory
from gradmarket.market.gradient.optimizers._tensor_steps import build_zeros, step_tensors

MOMENTS: Final = ("first", "second")
Answer = Callable[[Vector, Vector, Vector], Vector]
"""Maps (p, m, sqrt(v / (1 - beta2^t)) + epsilon) to the optimizer's result, elementwise; all float32."""


class Settings(optimizers.Settings):
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-8, ge=1e-30, le=1.0)
    weight_decay: float = Field(default=0.01, ge=0.0, le=1.0)

    def bias(self, steps: int) -> float:
        """Returns 1 - beta1^t, the bias correction of the gradients' mean."""
        return 1.0 - compute_power(self.beta1, steps)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """Returns the memory before the first step.

    `first/<name>` and `second/<name>` are the moments of each parameter's gradient, `steps` is a scalar int64.
    """
    return {"steps": np.zeros((), np.int64), **build_zeros(parameters, MOMENTS)}


def update_moments(
    parameters: Tensors,
    gradient: Tensors,
    memory: Arrays,
    settings: Settings,
    answer_of: Callable[[str, int], Answer],
) -> tuple[dict[str, Vector], Memory]:
    """Returns for each parameter the result of `answer_of(name, steps)`, and the memory after the step."""
    steps = steps_of(memory) + 1
    spread, epsilon = np.float32(math.sqrt(1.0 - compute_power(settings.beta2, steps))), np.float32(settings.epsilon)
    follow, remain, fresh = (np.float32(beta) for beta in (1 - settings.beta1, settings.beta2, 1 - settings.beta2))

    def kernel_of(name: str) -> Kernel:
        answer = answer_of(name, steps)

        def kernel(parameter: Vector, gradient: Vector, first: Vector, second: Vector) -> tuple[Vector, ...]:
            first = first + (gradient - first) * follow
            second = second * remain + gradient * gradient * fresh
            return answer(parameter, first, np.add(np.sqrt(second) / spread, epsilon)), first, second

        return kernel

    answers, kept = step_tensors(parameters, gradient, memory, MOMENTS, kernel_of)
    return answers, {"steps": np.array(steps, np.int64), **kept}


def steps_of(memory: Arrays) -> int:
    """Returns the number of steps that a memory has seen. Raises PayloadRefused where it has no such number."""
    steps = memory.get("steps")
    if steps is None or steps.shape != () or steps.dtype != np.int64:
        raise PayloadRefused("the optimizer's memory has no int64 scalar steps")
    return int(steps)


def compute_power(base: float, exponent: int) -> float:
    """Returns `base ** exponent` for exponent >= 0, by repeated squaring in float64: the same bits on every machine."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
