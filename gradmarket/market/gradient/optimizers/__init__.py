"""Applies the merged gradient to the parameters. Each optimizer is one file, and a job refers to it by the file's name.

An optimizer is `Settings`, two pure functions, `start` (its memory before the first round) and `step`, and whether it
is `ELEMENTWISE`. Its memory is a flat dict of named arrays, so it is stored like a model: `<key>/<parameter>` has a
parameter's shape, a name without a slash is common to all. It computes in float32, elementwise, with additions,
products, quotients and numpy's square root, which is correctly rounded, so its bits do not depend on the machine.
Matrix products are exact sums of whole numbers (_newton_schulz). Hyperparameters are computed in float64 and rounded to
float32 once.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.fields import Part
from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector, iterate_chunks
from graphdoc import plugins

Memory = dict[str, NDArray[Any]]
Kernel = Callable[..., tuple[Vector, ...]]
FusedStep = Callable[[str, Vector, Vector, Arrays, float, Any, Vector], Arrays]
"""(name, parameter, gradient, memory, rate, settings, after): writes `after`, flat float32 like the others, and changes
the memory of this parameter in place; returns the values common to all parameters after the step.

Raises PayloadRefused as the optimizer's `step` does.
"""


class ParameterGroup(Part):
    """A weight decay for the parameters whose names match the pattern (fnmatch: `*.bias`)."""

    pattern: str = Field(min_length=1, max_length=200)
    weight_decay: float = Field(ge=0.0, le=1.0)


class Settings(Part):
    """The settings of every optimizer besides name, rate, schedule and clip."""

    BESIDE: ClassVar[tuple[str, ...]] = ("lr", "schedule", "clip")

    weight_decay: float = Field(default=0.0, ge=0.0, le=1.0)
    groups: tuple[ParameterGroup, ...] = Field(default=(), max_length=100)

    def choose_weight_decay(self, name: str) -> float:
        """Returns the weight decay of a parameter: its first matching group's, else the common one."""
        matching = (group.weight_decay for group in self.groups if fnmatchcase(name, group.pattern))
        return next(matching, self.weight_decay)

    def operations(self, name: str, shape: tuple[int, ...]) -> int:  # noqa: ARG002
        """Returns the operations of a step on this parameter that grow faster than its size; a multiply-add is two."""
        return 0

    def count_scratch_bytes(self, name: str, shape: tuple[int, ...]) -> int:  # noqa: ARG002
        """Returns the bytes that a step on this parameter takes besides parameters, gradients and memory."""
        return 0


class OptimizerRule(Protocol):
    """The interface of a file in this folder."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """A subclass of `Settings`."""

    @property
    def ELEMENTWISE(self) -> bool:  # noqa: N802
        """Whether a step on a part of a tensor gives that part of the step on the whole tensor, to the bit."""

    def start(self, parameters: Tensors, settings: Any) -> Memory:
        """Returns the memory before the first step."""

    def step(
        self, parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Any
    ) -> tuple[dict[str, Vector], Memory]:
        """Returns the parameters and the memory after one step at rate `lr`; the arguments are not changed.

        Raises PayloadRefused where names, shapes or dtypes of the three do not match.
        """


def load_optimizer(name: str) -> OptimizerRule:
    """Returns the optimizer of that name. Raises Refused where there is none."""
    return cast(OptimizerRule, plugins.load_plugin(__name__, name))


def find_fused_step(rule: OptimizerRule) -> FusedStep | None:
    """Returns the optimizer's `step_fused`, which gives the bits of `step` in one compiled pass, or None.

    It serves merges alone, where memory is the requester's own.
    """
    return getattr(rule, "step_fused", None)


def check_gradient(parameters: Tensors, gradient: Tensors) -> None:
    """Raises PayloadRefused unless both have the same names, and float32 of one shape for each name."""
    if parameters.keys() != gradient.keys():
        raise PayloadRefused(f"no gradient for each parameter: {sorted(parameters.keys() ^ gradient.keys())[:5]}")
    for name, parameter in parameters.items():
        if gradient[name].shape != parameter.shape or not parameter.dtype == gradient[name].dtype == np.float32:
            raise PayloadRefused(f"the gradient of {name} has another shape or dtype than float32{parameter.shape}")


def read_memory_array(memory: Arrays, key: str, like: Vector) -> Vector:
    """Returns the float32 array `key` of a memory.

    Raises PayloadRefused where it is missing or its shape differs from its parameter's.
    """
    array = memory.get(key)
    if array is None or array.shape != like.shape or array.dtype != np.float32:
        raise PayloadRefused(f"the optimizer's memory has no {key} of float32{like.shape}")
    return array


def apply_kernel(kernel: Kernel, outputs: int, *arrays: Any) -> tuple[Vector, ...]:
    """Applies an elementwise kernel to float32 arrays of one shape, chunk by chunk; returns `outputs` new arrays.

    Arrays that are not numpy's, such as a card's (model.device_arrays), are taken whole.
    """
    if not isinstance(arrays[0], np.ndarray):
        return kernel(*arrays)
    results = tuple(np.empty(arrays[0].shape, np.float32) for _ in range(outputs))
    flat = [array.reshape(-1) for array in arrays]
    for part in iterate_chunks(arrays[0].size):
        for result, values in zip(results, kernel(*(array[part] for array in flat)), strict=True):
            result.reshape(-1)[part] = values
    return results
