"""Compiled loops of the optimizers that large models take: gradient to next parameter in one pass, in place.

`optimizers` has the formulas, for the workers that compute a task; these loops give the same bits, and tests compare
them. They serve merges alone, where memory is the requester's own.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.arithmetic import compute_power
from gradmarket.market.gradient.arrays import Arrays, Vector
from gradmarket.market.gradient.compiled import compile_loop
from gradmarket.market.gradient.optimizers import OptimizerRule, adamw, nesterov, read_memory_array

Fused = Callable[[str, Vector, Vector, Arrays, float, Any, Vector], Arrays]
"""(name, parameter, gradient, memory, rate, settings, after): writes `after`, flat float32 like the others, and changes
the memory of this parameter in place; returns the values common to all parameters after the step.

Raises PayloadRefused as the optimizer's `step` does.
"""


def find_fused_loop(rule: OptimizerRule) -> Fused | None:
    """Returns the optimizer's loop; None where it has none."""
    return _FUSED.get(rule)


def _apply_adamw(
    name: str, parameter: Vector, gradient: Vector, memory: Arrays, lr: float, settings: Any, after: Vector
) -> Arrays:
    steps = adamw.steps_of(memory) + 1
    first, second = (read_memory_array(memory, f"{moment}/{name}", parameter) for moment in ("first", "second"))
    spread = math.sqrt(1.0 - compute_power(settings.beta2, steps))
    numbers = (
        *(1.0 - settings.beta1, settings.beta2, 1.0 - settings.beta2, spread, settings.epsilon),
        *(1.0 - lr * settings.choose_weight_decay(name), lr / settings.bias(steps)),
    )
    adamw_loop(parameter, gradient, first, second, after, *map(np.float32, numbers))
    return {"steps": np.array(steps, np.int64)}


def _apply_nesterov(
    name: str, parameter: Vector, gradient: Vector, memory: Arrays, lr: float, settings: Any, after: Vector
) -> Arrays:
    momentum = read_memory_array(memory, f"momentum/{name}", parameter)
    numbers = map(np.float32, (lr, settings.choose_weight_decay(name), settings.momentum))
    nesterov_loop(parameter, gradient, momentum, after, *numbers)
    return {}


_FUSED: Final[Mapping[Any, Fused]] = {adamw: _apply_adamw, nesterov: _apply_nesterov}


@compile_loop
def adamw_loop(
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


@compile_loop
def nesterov_loop(parameter: Any, gradient: Any, momentum: Any, after: Any, rate: Any, shrink: Any, share: Any) -> None:
    for place in range(parameter.size):
        slope = gradient[place] + parameter[place] * shrink
        moved = momentum[place] * share + slope
        after[place] = parameter[place] - (slope + moved * share) * rate
        momentum[place] = moved
