"""The shards of a merged answer, and work on them in lanes, each of which takes every n-th shard."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import CHUNK, Vector
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry


@dataclass(frozen=True)
class Shards:
    """`merged(indices)` yields these shards of a layout, flat float32, as often as it is called.

    alone: whether it may be asked for some of them, by several threads at a time; else only for all, in order.
    """

    merged: Callable[[Sequence[int]], Iterator[Vector]]
    alone: bool


@dataclass(frozen=True)
class Lanes:
    """`run(act, parts)` calls `act` with each part, like `map`, maybe in `count` threads; raises a call's exception."""

    count: int = 1
    run: Callable[[Callable[[Sequence[int]], None], Iterable[Sequence[int]]], Iterable[None]] = map


ONE: Final = Lanes()


def in_order(layout: Layout, shards: Shards) -> Iterator[Vector]:
    """Yields all shards."""
    return shards.merged(range(len(layout.shards)))


def in_lanes(layout: Layout, shards: Shards, lanes: Lanes, act: Callable[[int, Vector], None]) -> None:
    """Calls `act` with the index and the elements of every shard; one call must not depend on another."""
    every = range(len(layout.shards))
    count = min(lanes.count, len(every)) if shards.alone else 1

    def lane(indices: Sequence[int]) -> None:
        for index, shard in zip(indices, shards.merged(indices), strict=True):
            act(index, shard)

    deque(lanes.run(lane, [every[first::count] for first in range(count)]), maxlen=0)


def iterate_shard_pieces(
    layout: Layout, index: int, shard: Vector, most: int = CHUNK
) -> Iterator[tuple[LayoutEntry, slice, Vector]]:
    """Yields the tensors' elements in a shard, at most `most` at a time, with their place in the flat tensor."""
    return cut_pieces(layout, layout.shards[index].start, shard, most)


def cut_pieces(layout: Layout, start: int, values: Vector, most: int) -> Iterator[tuple[LayoutEntry, slice, Vector]]:
    """Yields the elements of a part of the flat vector that begins at `start`, like `iterate_shard_pieces`."""
    done, stop, number = start, start + values.size, bisect_right(layout.starts, start) - 1
    while done < stop:
        entry, first = layout.entries[number], layout.starts[number]
        count = min(first + entry.size - done, stop - done, most)
        yield entry, slice(done - first, done - first + count), values[done - start : done - start + count]
        done += count
        number += done == first + entry.size


def collect_shards(layout: Layout, shards: Shards, lanes: Lanes = ONE) -> Vector:
    """Returns all shards as one flat vector."""
    vector = np.empty(layout.size, np.float32)

    def keep(index: int, shard: Vector) -> None:
        vector[layout.shards[index]] = shard

    in_lanes(layout, shards, lanes, keep)
    return vector


def build_shards(layout: Layout, vector: Vector) -> Shards:
    """Returns a flat vector's shards."""
    return Shards(lambda indices: (vector[layout.shards[index]] for index in indices), alone=True)
