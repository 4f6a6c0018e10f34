"""One optimizer step of a merge, taken tensor by tensor, or piece by piece and by several threads.

The job names the optimizer and its settings (OptimizerStep), checked where they are set.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import CHUNK, Arrays, Tensors, Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.optimizers import OptimizerRule, find_fused_step
from gradmarket.market.gradient.payload_layout import SHARD_ELEMENTS, LayoutEntry


class OneStep:
    """Writes `after` and changes `memory` in place. Raises PayloadRefused for the memory of other parameters."""

    loss = math.nan
    factor: np.float32 | None = None
    """The factor that gradients are multiplied by."""

    @property
    def most(self) -> int:
        """Returns the elements of one piece: the size of a core's cache for several passes, or a shard for one loop."""
        return CHUNK if self._fused is None else SHARD_ELEMENTS

    def __init__(
        self, parameters: Tensors, after: Arrays, memory: Arrays, rule: OptimizerRule, settings: Any, lr: float
    ) -> None:
        self._parameters, self._after, self._memory, self._lr = parameters, after, memory, lr
        self._rule, self._settings, self._fused = rule, settings, find_fused_step(rule)
        self._keys: dict[str, list[str]] = {}
        """The optimizer's arrays by parameter; arrays of none, such as a number of steps, under an empty name."""
        self._common: Arrays = {}
        for key, array in memory.items():
            _, _, name = key.partition("/")
            if name and (name not in parameters or parameters[name].shape != array.shape):
                raise PayloadRefused(f"the optimizer's memory has {key}, which matches no parameter's shape")
            self._keys.setdefault(name, []).append(key)

    def take(self, parts: Iterable[tuple[LayoutEntry, slice, Vector]]) -> None:
        """Applies merged elements, given with their places in their tensors."""
        for entry, place, values in parts:
            if entry.kind == "gradient":
                self._step_part(entry.name, place, values if self.factor is None else values * self.factor)
            elif entry.kind == "buffer":
                self._after[entry.name].reshape(-1)[place] = values
            else:
                self.loss = float(values[0])

    def take_whole(self, tensors: Iterable[tuple[LayoutEntry, Vector]]) -> None:
        self.take((entry, slice(0, entry.size), values) for entry, values in tensors)

    def _step_part(self, name: str, place: slice, gradient: Vector) -> None:
        """Updates this part of a parameter: as flat vectors, or in its own shape where that may matter."""
        own, common = self._keys.get(name, ()), self._keys.get("", ())
        if self._fused is not None:
            held = {key: self._memory[key].reshape(-1)[place] for key in own} | {k: self._memory[k] for k in common}
            before, after = (each[name].reshape(-1)[place] for each in (self._parameters, self._after))
            self._common = self._fused(name, before, gradient, held, self._lr, self._settings, after)
            return
        shape = (-1,) if self._rule.ELEMENTWISE else self._parameters[name].shape
        held = {key: self._memory[key].reshape(-1)[place].reshape(shape) for key in own}
        held |= {key: self._memory[key] for key in common}
        parameter = {name: self._parameters[name].reshape(-1)[place].reshape(shape)}
        slope = {name: gradient.reshape(shape)}
        moved, kept = self._rule.step(parameter, slope, held, self._lr, self._settings)
        self._after[name].reshape(-1)[place] = moved[name].reshape(-1)
        for key in own:
            held[key][...] = kept[key]
        self._common = {key: kept[key] for key in common}

    def finish(self) -> None:
        """Updates the values common to all parameters, once."""
        for key, array in self._common.items():
            self._memory[key][...] = array


@dataclass(frozen=True)
class OptimizerStep:
    """A job's rule for updating its model: optimizer, settings, and the norm to which gradients are clipped (None:
    not).

    downlink: the codec of the updates that rounds publish (published_update); None: they publish whole parameters.
    """

    optimizer: OptimizerRule
    settings: Any
    clip: float | None = None
    downlink: Codec | None = None
