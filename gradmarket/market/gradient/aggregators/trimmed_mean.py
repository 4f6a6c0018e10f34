"""The mean of each element's values without the `trim` smallest and the `trim` largest.

Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
definition 2. While at most `trim` of n >= 2 trim + 1 answers are hostile, each merged element lies within the range of
the honest ones. Loss and buffers are merged in the same way.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.aggregators._columns import fold_columns
from gradmarket.market.gradient.aggregators._sorting import mean_of_middle
from gradmarket.market.gradient.arrays import Vector

SHARDWISE: Final = True


class Settings(aggregators.Settings):
    """`trim`: values left out at either end; as many hostile answers are tolerated."""

    trim: int = Field(default=1, ge=0, lt=SIDE_BY_SIDE // 2)

    @property
    def least(self) -> int:
        return 2 * self.trim + 1


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:
    def fold(rows: list[Vector], merged: Vector) -> None:
        mean_of_middle(rows, settings.trim, merged)

    return (fold_columns(stack, fold) for stack in stacks)
