"""Merges a round's accepted answers exactly, and applies the result by the job's optimizer.

    answers (bytes) -> stacks, shard by shard -> aggregator -> named tensors -> clip -> optimizer -> the next parameters

`merge` and `apply` are pure: the whole run is a function of the accepted answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.aggregators import AggregatorRule, Band
from gradmarket.market.gradient.arrays import Arrays, Bytes, Tensors, Vector
from gradmarket.market.gradient.clipping import clip
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.inspection import VALUE_BOUND
from gradmarket.market.gradient.optimizers import OptimizerRule
from gradmarket.market.gradient.payload import Layout, read_shard, sections, unflatten


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

    Memory is one answer's vector and what the aggregator needs for a shard. Raises PayloadRefused where there is no
    answer, or more than `addends`, or a malformed or diverged one.
    """
    if not 1 <= len(answers) <= recipe.addends:
        raise PayloadRefused(f"a merge takes 1 to {recipe.addends} answers, not {len(answers)}")
    stacks = [_Stack(recipe, answers, index) for index in range(len(recipe.layout.shards))]
    vector = np.empty(recipe.layout.size, np.float32)
    merged = recipe.aggregator.aggregate(stacks, recipe.settings)
    for part, shard in zip(recipe.layout.shards, merged, strict=True):
        vector[part] = shard
    return unflatten(recipe.layout, vector)


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
    parameters = _trainable(layout, model.tensors)
    gradient = {name: merged[name] for name in parameters}
    gradient = clip(gradient, move.clip) if move.clip is not None else gradient
    moved, memory = move.optimizer.step(parameters, gradient, model.memory, lr, move.settings)
    buffers = {entry.name: merged[entry.name] for entry in layout.of("buffer")}
    counted = {name: _counted(name, model.tensors) for name in counters}
    return ModelState({**model.tensors, **moved, **buffers, **counted}, memory)


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
