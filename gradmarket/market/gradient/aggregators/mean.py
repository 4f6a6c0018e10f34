"""The mean of the answers, by exact sums. They come scaled where they weigh unequally (MergedAnswer.scale)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

import numpy as np

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import aggregators
from gradmarket.market.gradient.accumulate import FEW, MAX_ADDENDS, Accumulator, quick_mean
from gradmarket.market.gradient.aggregators import Stack
from gradmarket.market.gradient.aggregators._columns import size_of
from gradmarket.market.gradient.arrays import Vector, iterate_chunks

SHARDWISE: Final = True
TOGETHER: Final = FEW
"""Answers whose shards are in memory at once."""
COLUMNS: Final = 2**16
"""Elements of each that are summed at a time, so that the sums stay in a core's cache."""


class Settings(aggregators.Settings):
    """The mean has no settings."""

    most = MAX_ADDENDS


def aggregate(stacks: Iterable[Stack], settings: Settings) -> Iterator[Vector]:  # noqa: ARG001
    # the sums' memory is kept between shards: fresh memory pages cost more time than the sums
    warm: dict[object, Accumulator] = {}
    return (_compute_shard_mean(stack, warm) for stack in stacks)


def _compute_shard_mean(stack: Stack, warm: dict[object, Accumulator]) -> Vector:
    merged, rows = np.empty(size_of(stack), np.float32), stack.rows()
    first = list(islice(rows, TOGETHER))
    if len(first) < TOGETHER:
        for band in stack.bands:
            _write_small_mean([row[band.part] for row in first], band.bound, stack.addends, merged[band.part])
        return merged
    sums = list[tuple[slice, Accumulator]]()
    for band in stack.bands:
        start, stop, _ = band.part.indices(band.part.stop)
        for piece in iterate_chunks(stop - start, COLUMNS):
            part = slice(start + piece.start, start + piece.stop)
            place = (part.start, part.stop, band.bound, stack.addends)
            if place not in warm:
                warm[place] = Accumulator(part.stop - part.start, band.bound, stack.addends)
            warm[place].clear()
            sums.append((part, warm[place]))
    for group in chain([first], iter(lambda: list(islice(rows, TOGETHER)), [])):
        for part, total in sums:
            total.extend([row[part] for row in group])
    for part, total in sums:
        merged[part] = total.mean()
    return merged


def _write_small_mean(rows: Sequence[Vector], bound: float, addends: int, merged: Vector) -> None:
    """Writes the mean of all answers; exact sums in limbs are needed only where float64 does not hold the sum."""
    if len(rows) > addends:
        raise PayloadRefused(f"a sum has {addends} addends, not {len(rows)}")
    for part in quick_mean(rows, bound, merged):
        total = Accumulator(part.stop - part.start, bound, addends)
        total.extend([row[part] for row in rows])
        merged[part] = total.mean()
