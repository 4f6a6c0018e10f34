"""The mean of the answers, by exact sums. All weigh the same, since every task has the same number of rows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.accumulate import MAX_ADDENDS, Accumulator
from gradmarket.market.gradient.aggregators import Stack
from gradmarket.market.gradient.arrays import Vector

TOGETHER: Final = 16
"""Answers whose shards are held at once."""


class Settings(aggregators.Settings):
    """None."""

    most = MAX_ADDENDS


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:  # noqa: ARG001
    return (_mean(stack) for stack in stacks)


def _mean(stack: Stack) -> Vector:
    sums = [
        Accumulator(band.part.stop - band.part.start, band.bound, stack.addends, band.limbs) for band in stack.bands
    ]
    rows = stack.rows()
    while group := list(islice(rows, TOGETHER)):
        for band, total in zip(stack.bands, sums, strict=True):
            total.extend([row[band.part] for row in group])
    return np.concatenate([total.mean() for total in sums])
