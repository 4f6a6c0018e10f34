"""Nesterov's momentum, the outer step of local steps (Sutskever et al. 2013, as in torch.optim.SGD with nesterov).

g <- g + decay * p
m <- momentum * m + g
p <- p - lr * (g + momentum * m)

DiLoCo (Douillard et al. 2023, section 3) takes lr 0.7 and momentum 0.9 with pseudo-gradients for g.
"""

from typing import Any, Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.compiled import compile_loop
from gradmarket.market.gradient.optimizers import Kernel, Memory, read_memory_array
from gradmarket.market.gradient.optimizers._tensor_steps import build_zeros, step_tensors

ELEMENTWISE: Final = True


class Settings(optimizers.Settings):
    momentum: float = Field(default=0.9, gt=0.0, lt=1.0)


def start(parameters: Tensors, settings: Settings) -> Memory:  # noqa: ARG001
    """Returns `momentum/<name>`, zeros, for each parameter."""
    return build_zeros(parameters, ["momentum"])


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    rate, keep = np.float32(lr), np.float32(settings.momentum)

    def kernel_of(name: str) -> Kernel:
        shrink = np.float32(settings.choose_weight_decay(name))

        def kernel(parameter: Vector, gradient: Vector, before: Vector) -> tuple[Vector, ...]:
            slope = gradient + parameter * shrink
            after = before * keep + slope
            return np.subtract(parameter, (slope + after * keep) * rate), after

        return kernel

    return step_tensors(parameters, gradient, memory, ["momentum"], kernel_of)


def step_fused(
    name: str, parameter: Vector, gradient: Vector, memory: Arrays, lr: float, settings: Settings, after: Vector
) -> Arrays:
    momentum = read_memory_array(memory, f"momentum/{name}", parameter)
    numbers = map(np.float32, (lr, settings.choose_weight_decay(name), settings.momentum))
    _step_at_once(parameter, gradient, momentum, after, *numbers)
    return {}


@compile_loop
def _step_at_once(parameter: Any, gradient: Any, momentum: Any, after: Any, rate: Any, shrink: Any, share: Any) -> None:
    for place in range(parameter.size):
        slope = gradient[place] + parameter[place] * shrink
        moved = momentum[place] * share + slope
        after[place] = parameter[place] - (slope + moved * share) * rate
        momentum[place] = moved
