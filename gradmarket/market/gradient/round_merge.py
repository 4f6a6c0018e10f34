"""Merges a round's accepted answers exactly.

    answers (bytes) -> stacks, shard by shard -> aggregator -> merged shards (round_update applies them)

The whole run is a function of the accepted answers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.aggregators import AggregatorRule, Band
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.inspection import VALUE_BOUND
from gradmarket.market.gradient.noise import Noise
from gradmarket.market.gradient.payload import read_shard, weight_of
from gradmarket.market.gradient.payload_layout import Layout, list_sections
from gradmarket.market.gradient.shards import Shards
from graphdoc.encoding import Bytes

ROUNDED: Final = 1.0 + 2.0**-20
"""More than the factor by which rounding to float32 enlarges a product."""
MOST_MEDIANS: Final = 8.0
"""One accepted lie, by a lone replica or a quorum that colludes, counts at most as much as this many honest answers."""


@dataclass(frozen=True)
class MergedAnswer:
    """An accepted payload that has not diverged, its root verified, and its task's seed.

    `data` may be a memory map of a large blob.
    """

    data: Bytes
    seed: bytes
    scale: float = 1.0
    """The float32 factor of the whole answer before the merge (features.private.holder_rows); where the layout is
    weighed, the answer's weight takes its place (model.layout)."""


@dataclass(frozen=True)
class Recipe:
    """A job's rule for merging its answers, fixed before its first round.

    norm_bound: the largest L2 norm of an answer's gradients. addends: the most answers a round can have. A mean is
    exact for any values of these.
    """

    layout: Layout
    codec: Codec
    aggregator: AggregatorRule
    settings: Any
    norm_bound: float
    addends: int
    noise: Noise | None = None
    """Added to the mean of the answers' gradients (features.private.holder_budget)."""


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
        widest = max(1.0, *(answer.scale for answer in self.answers))
        rounded = 1.0 if widest == 1.0 else ROUNDED * widest
        return tuple(
            Band(section.part, rounded * self.recipe.norm_bound)
            if section.gradient
            else Band(section.part, rounded * VALUE_BOUND, gradient=False)
            for section in list_sections(self.recipe.layout, self.index)
        )

    def rows(self) -> Iterator[Vector]:
        layout, codec = self.recipe.layout, self.recipe.codec
        for answer in self.answers:
            shard = read_shard(layout, answer.data, self.index, codec, answer.seed)
            yield shard if answer.scale == 1.0 else shard * np.float32(answer.scale)


def merged_shards(recipe: Recipe, answers: Sequence[MergedAnswer]) -> Shards:
    """Returns shards that merge the answers anew at each call; memory is the aggregator's for one shard.

    Raises PayloadRefused where there is no answer, or more than `addends`; each call raises it where an answer is
    malformed or diverged.
    """
    if not 1 <= len(answers) <= recipe.addends:
        raise PayloadRefused(f"a merge takes 1 to {recipe.addends} answers, not {len(answers)}")
    if recipe.layout.weighed:
        weights = [weight_of(recipe.layout, answer.data) for answer in answers]
        answers = [replace(answer, scale=scale) for answer, scale in zip(answers, weight_scales(weights), strict=True)]

    def merged(indices: Sequence[int]) -> Iterator[Vector]:
        stacks = [_Stack(recipe, answers, index) for index in indices]
        found = recipe.aggregator.aggregate(stacks, recipe.settings)
        return found if recipe.noise is None else map(noised, indices, found)

    def noised(index: int, shard: Vector) -> Vector:
        first = recipe.layout.shards[index].start
        for section in list_sections(recipe.layout, index) if recipe.noise else ():
            if section.gradient and recipe.noise:
                part = section.part
                shard[part] = recipe.noise.added(shard[part], len(answers), first + part.start)
        return shard

    return Shards(merged, recipe.aggregator.SHARDWISE)


def weight_scales(weights: Sequence[float]) -> tuple[float, ...]:
    """Returns the factors of answers of these weights that make their plain mean the weighted one.

    A weight counts as at most MOST_MEDIANS times the round's median of those above 0. The same in any order of the
    answers. Where no row of a round has a weight, all answers are zeros, and count alike.
    """
    some = [weight for weight in weights if weight > 0.0]
    if not some:
        return (1.0,) * len(weights)
    most = MOST_MEDIANS * median(some)
    counted = [min(weight, most) for weight in weights]
    total = math.fsum(counted)
    return tuple(len(counted) * weight / total for weight in counted)
