"""The median of each element's values; for an even number the mean of the two in the middle.

Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
definition 1. While fewer than half of the answers are hostile, each merged element lies within the range of the honest
ones. Loss and buffers are merged in the same way.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import Field

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.aggregators import SIDE_BY_SIDE, Stack
from gradmarket.market.gradient.aggregators._columns import fold_columns
from gradmarket.market.gradient.aggregators._sorting import write_median
from gradmarket.market.gradient.arrays import Vector

SHARDWISE: Final = True


class Settings(aggregators.Settings):
    """`hostile`: how many hostile answers a round must tolerate."""

    hostile: int = Field(default=1, ge=0, lt=SIDE_BY_SIDE // 2)

    @property
    def least(self) -> int:
        return 2 * self.hostile + 1


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:  # noqa: ARG001
    return (fold_columns(stack, write_median) for stack in stacks)
