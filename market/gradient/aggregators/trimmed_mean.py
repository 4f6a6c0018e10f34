"""The mean of what is left of each element's values without the `trim` smallest and the `trim` largest.

Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
definition 2. While at most `trim` of n >= 2 trim + 1 answers are hostile, each merged element lies within the range of
the honest ones. Loss and buffers are merged in the same way.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.columns import pieces, size_of
from gradmarket.market.gradient.sorting import mean_of_middle


class Settings(aggregators.Settings):
    """`trim`: values left out at either end, so that as many hostile answers do no harm."""

    trim: int = Field(default=1, ge=0, lt=SIDE_BY_SIDE // 2)

    @property
    def least(self) -> int:
        return 2 * self.trim + 1


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:
    return (_trimmed(stack, settings.trim) for stack in stacks)


def _trimmed(stack: Stack, trim: int) -> Vector:
    merged = np.empty(size_of(stack), np.float32)
    for piece, rows in pieces(stack, slice(0, merged.size)):
        mean_of_middle(rows, trim, merged[piece])
    return merged
