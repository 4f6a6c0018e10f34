"""How the merged gradient moves the parameters: one file per optimizer, its name is the one in the job.

An optimizer is three pure things: `Settings`, `start` (its memory before the first round) and `step`. Its memory is a
flat dict of named arrays, so it is stored like a model. It computes in float32, elementwise, with additions,
products, quotients and numpy's square root, which is correctly rounded, so its bits do not depend on the machine;
hyperparameters are worked out in float64 and rounded to float32 once.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market import plugins
from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector, chunks

Memory = dict[str, NDArray[Any]]
Kernel = Callable[..., tuple[Vector, ...]]


class ParameterPart(BaseModel):
    """Unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ParameterGroup(ParameterPart):
    """Parameters whose name matches the pattern (fnmatch: `*.bias`) decay by this much instead."""

    pattern: str = Field(min_length=1, max_length=200)
    weight_decay: float = Field(ge=0.0, le=1.0)


class Settings(ParameterPart):
    """What every optimizer takes beside name, rate, schedule and clip."""

    weight_decay: float = Field(default=0.0, ge=0.0, le=1.0)
    groups: tuple[ParameterGroup, ...] = Field(default=(), max_length=100)

    def decay(self, name: str) -> float:
        """The weight decay of a parameter: its first matching group's, else the common one."""
        matching = (group.weight_decay for group in self.groups if fnmatchcase(name, group.pattern))
        return next(matching, self.weight_decay)


class OptimizerRule(Protocol):
    """What a file in this folder offers."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """A subclass of `Settings`."""

    def start(self, parameters: Tensors, settings: Any) -> Memory:
        """The memory before the first step."""

    def step(
        self, parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Any
    ) -> tuple[dict[str, Vector], Memory]:
        """The parameters and the memory after one step at rate `lr`; what was given is left as it was.

        Raises PayloadRefused where names, shapes or dtypes of the three do not fit together.
        """


def optimizer(name: str) -> OptimizerRule:
    """The optimizer of that name. Raises Refused where there is none."""
    return cast(OptimizerRule, plugins.load(__name__, name))


def check(parameters: Tensors, gradient: Tensors) -> None:
    """Raises PayloadRefused unless both have the same names, and for each name float32 of one shape."""
    if parameters.keys() != gradient.keys():
        raise PayloadRefused(f"no gradient for each parameter: {sorted(parameters.keys() ^ gradient.keys())[:5]}")
    for name, parameter in parameters.items():
        if gradient[name].shape != parameter.shape or not parameter.dtype == gradient[name].dtype == np.float32:
            raise PayloadRefused(f"the gradient of {name} has another shape or dtype than float32{parameter.shape}")


def remembered(memory: Arrays, key: str, like: Vector) -> Vector:
    """The float32 array `key` of a memory. Raises PayloadRefused where it is missing or shaped unlike its parameter."""
    found = memory.get(key)
    if found is None or found.shape != like.shape or found.dtype != np.float32:
        raise PayloadRefused(f"the optimizer's memory has no {key} of float32{like.shape}")
    return found


def sweep(kernel: Kernel, outputs: int, *arrays: Vector) -> tuple[Vector, ...]:
    """An elementwise kernel over float32 arrays of one shape, a cache's worth at a time: `outputs` new arrays."""
    results = tuple(np.empty(arrays[0].shape, np.float32) for _ in range(outputs))
    flat = [array.reshape(-1) for array in arrays]
    for part in chunks(arrays[0].size):
        for result, values in zip(results, kernel(*(array[part] for array in flat)), strict=True):
            result.reshape(-1)[part] = values
    return results
