"""Merges a round's accepted answers exactly, and applies the result by the job's optimizer.

    answers (bytes) -> stacks, shard by shard -> aggregator -> clip -> optimizer -> the next parameters

The whole run is a function of the accepted answers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.aggregators import AggregatorRule, Band
from gradmarket.market.gradient.arrays import Arrays, Bytes, Tensors, Vector
from gradmarket.market.gradient.clipping import factor
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.inspection import VALUE_BOUND
from gradmarket.market.gradient.optimizers import Memory, OptimizerRule
from gradmarket.market.gradient.payload import Layout, flatten, pieces, read_shard, sections, unflatten

Shards = Callable[[], Iterator[Vector]]
"""Yields the merged shards in order, as often as it is called."""
HELD: Final = 2**26
"""Elements of a merged answer that are kept for a second pass, where clipping needs one; more are merged twice."""


@dataclass(frozen=True)
class MergedAnswer:
    """An accepted payload that has not diverged, its root verified, and its task's seed.

    `data` may be a memory map of a large blob.
    """

    data: Bytes
    seed: bytes


@dataclass(frozen=True)
class Recipe:
    """How a job merges its answers, fixed before its first round.

    norm_bound: the largest L2 norm of an answer's gradients. addends: the most answers a round can have. A mean is
    exact whatever these are.
    """

    layout: Layout
    codec: Codec
    aggregator: AggregatorRule
    settings: Any
    norm_bound: float
    addends: int


@dataclass(frozen=True)
class _Stack:
    recipe: Recipe
    answers: Sequence[MergedAnswer]
    index: int

    @property
    def addends(self) -> int:
        return self.recipe.addends

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        return tuple(
            Band(section.part, self.recipe.norm_bound)
            if section.gradient
            else Band(section.part, VALUE_BOUND, gradient=False)
            for section in sections(self.recipe.layout, self.index)
        )

    def rows(self) -> Iterator[Vector]:
        layout, codec = self.recipe.layout, self.recipe.codec
        return (read_shard(layout, answer.data, self.index, codec, answer.seed) for answer in self.answers)


def merge(recipe: Recipe, answers: Sequence[MergedAnswer]) -> dict[str, Vector]:
    """Returns the merged answer: float32 tensors by name, bitwise the same in any order of the answers.

    Memory is one answer's vector and what the aggregator needs for a shard. Raises as `merged_shards` does.
    """
    vector = np.empty(recipe.layout.size, np.float32)
    for part, shard in zip(recipe.layout.shards, merged_shards(recipe, answers)(), strict=True):
        vector[part] = shard
    return unflatten(recipe.layout, vector)


def merged_shards(recipe: Recipe, answers: Sequence[MergedAnswer]) -> Shards:
    """Returns a function that merges the answers anew, shard by shard; memory is what the aggregator needs for one.

    Raises PayloadRefused where there is no answer, or more than `addends`; each call where one is malformed or
    diverged.
    """
    if not 1 <= len(answers) <= recipe.addends:
        raise PayloadRefused(f"a merge takes 1 to {recipe.addends} answers, not {len(answers)}")
    stacks = [_Stack(recipe, answers, index) for index in range(len(recipe.layout.shards))]
    return lambda: recipe.aggregator.aggregate(stacks, recipe.settings)


@dataclass(frozen=True)
class OptimizerStep:
    """How a job updates its model: optimizer, settings, and the norm that gradients are clipped to (None: not)."""

    optimizer: OptimizerRule
    settings: Any
    clip: float | None = None


@dataclass(frozen=True)
class ModelState:
    """The state that a round changes: parameters, float buffers and counters by name, and the optimizer's memory."""

    tensors: Arrays
    memory: Arrays


def begin(layout: Layout, tensors: Arrays, move: OptimizerStep) -> ModelState:
    """Returns the model's state before its first round.

    Raises PayloadRefused where a tensor of the layout is missing or has another shape or dtype.
    """
    return ModelState(tensors, move.optimizer.start(_trainable(layout, tensors), move.settings))


def apply(
    layout: Layout, model: ModelState, merged: Tensors, move: OptimizerStep, lr: float, counters: Sequence[str] = ()
) -> ModelState:
    """Returns the model's state after a round: trainable parameters updated at rate `lr`, float buffers as merged.

    counters: the integer tensors that count rounds of training (`num_batches_tracked`); each is increased by one. All
    other tensors are unchanged. Raises PayloadRefused where names, shapes or dtypes do not match the layout.
    """
    vector = flatten(layout, merged)
    after = {name: np.empty_like(array, order="C") for name, array in model.tensors.items()}
    memory = {name: np.array(array, order="C") for name, array in model.memory.items()}
    advance(layout, model.tensors, after, memory, lambda: (vector[part] for part in layout.shards), move, lr, counters)
    return ModelState(after, memory)


def advance(
    layout: Layout,
    before: Arrays,
    after: Arrays,
    memory: Arrays,
    shards: Shards,
    move: OptimizerStep,
    lr: float,
    counters: Sequence[str] = (),
) -> float:
    """Does what `apply` does, piece by piece: writes `after` and changes `memory` in place; returns the merged loss.

    shards: merges the answers, as `merged_shards` returns it; called once more where gradients are clipped. Memory is a
    shard's, and the largest tensor's where clipping or the optimizer need whole tensors. Raises as `apply` does, and as
    `shards` does; after that `after` and `memory` are invalid.
    """
    parameters = _trainable(layout, before)
    update = _Update(parameters, after, memory, move, lr)
    shards, factor = _clipped(layout, shards, move.clip)
    loss = math.nan
    for entry, place, values in pieces(layout, shards(), whole=not move.optimizer.ELEMENTWISE):
        if entry.kind == "gradient":
            update.step(entry.name, place, values if factor is None else values * factor)
        elif entry.kind == "buffer":
            after[entry.name].reshape(-1)[place] = values
        else:
            loss = float(values[0])
    update.finish()
    counted = {name: _counted(name, before) for name in counters}
    for name in before.keys() - {entry.name for entry in layout.entries[1:]}:
        after[name][...] = counted.get(name, before[name])
    return loss


class _Update:
    """One optimizer step, taken tensor by tensor or piece by piece."""

    def __init__(self, parameters: Tensors, after: Arrays, memory: Arrays, move: OptimizerStep, lr: float) -> None:
        self._parameters, self._after, self._memory, self._move, self._lr = parameters, after, memory, move, lr
        self._keys: dict[str, list[str]] = {}
        """The optimizer's arrays of each parameter; those of none, such as a number of steps, under an empty name."""
        self._common: Memory = {}
        for key, array in memory.items():
            _, _, name = key.partition("/")
            if name and (name not in parameters or parameters[name].shape != array.shape):
                raise PayloadRefused(f"the optimizer's memory has {key}, which is of no parameter of its shape")
            self._keys.setdefault(name, []).append(key)

    def step(self, name: str, place: slice, gradient: Vector) -> None:
        """Updates this part of a parameter, as flat vectors."""
        own, common = self._keys.get(name, ()), self._keys.get("", ())
        held = {key: self._memory[key].reshape(-1)[place] for key in own} | {key: self._memory[key] for key in common}
        parameter = {name: self._parameters[name].reshape(-1)[place]}
        moved, kept = self._move.optimizer.step(parameter, {name: gradient}, held, self._lr, self._move.settings)
        self._after[name].reshape(-1)[place] = moved[name]
        for key in own:
            held[key][...] = kept[key]
        self._common = {key: kept[key] for key in common}

    def finish(self) -> None:
        """Changes what all parameters have in common, once."""
        for key, array in self._common.items():
            self._memory[key][...] = array


def _clipped(layout: Layout, shards: Shards, limit: float | None) -> tuple[Shards, np.float32 | None]:
    """Returns the shards, kept where they are few, and the factor that their gradients are to be multiplied by."""
    if limit is None:
        return shards, None
    kept = list(shards()) if layout.size <= HELD else None
    again = shards if kept is None else lambda: iter(kept)
    return again, factor(
        (values for entry, _, values in pieces(layout, again(), whole=True) if entry.kind == "gradient"), limit
    )


def _trainable(layout: Layout, tensors: Arrays) -> dict[str, Vector]:
    for entry in (*layout.of("gradient"), *layout.of("buffer")):
        tensor = tensors.get(entry.name)
        if tensor is None or tensor.shape != entry.shape or tensor.dtype != np.float32:
            raise PayloadRefused(f"the model has no {entry.name} of float32{entry.shape}")
    return {entry.name: tensors[entry.name] for entry in layout.of("gradient")}


def _counted(name: str, tensors: Arrays) -> NDArray[Any]:
    counter = tensors.get(name)
    if counter is None or not np.issubdtype(counter.dtype, np.integer):
        raise PayloadRefused(f"the model has no integer {name}")
    return np.asarray(counter + counter.dtype.type(1))
