"""A merge cut into parts, ranges of the flat vector, each of which is done by itself; the bits are those of the whole.

    answers -> merged elements of a range -> sums of their squares       (where gradients are clipped)
    answers -> merged elements of a range -> optimizer -> a part of the parameters and of the optimizer's memory

A part of a tensor is flat, under the tensor's name. A range of squares begins where a chunk of a tensor does, so that
the norm adds the same numbers; a range of steps begins with a shard or, where the optimizer needs whole tensors, with a
tensor.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.gradient.arrays import CHUNK, Arrays, Vector
from gradmarket.market.gradient.norm import compute_clip_factor
from gradmarket.market.gradient.one_step import OneStep, OptimizerStep
from gradmarket.market.gradient.optimizers import OptimizerRule
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.shards import Shards, cut_pieces
from gradmarket.market.gradient.sums import iterate_square_sums


def square_ranges(layout: Layout, most: int) -> list[slice]:
    """Returns the ranges of squares, of at most `most` elements where that is at least CHUNK."""
    begun = zip(layout.starts, layout.entries, strict=True)
    starts = (first + at for first, entry in begun for at in range(0, max(1, entry.size), CHUNK))
    return _join_ranges(starts, layout.size, most)


def step_ranges(layout: Layout, rule: OptimizerRule, most: int) -> list[slice]:
    """Returns the ranges of steps, of at most `most` elements where that is at least a shard, or the largest tensor.

    The first one has the loss and, where the layout has gradients, one of them: its memory holds the values common to
    all parameters.
    """
    whole = (start for start in layout.starts if start != 1)
    return _join_ranges((shard.start for shard in layout.shards) if rule.ELEMENTWISE else whole, layout.size, most)


def _join_ranges(starts: Iterable[int], end: int, most: int) -> list[slice]:
    cuts = [0]
    for start, following in pairwise([*sorted(set(starts)), end]):
        if following - cuts[-1] > most and start > cuts[-1]:
            cuts.append(start)
    return [slice(*each) for each in pairwise([*cuts, end])]


def places_in(layout: Layout, part: slice) -> Iterator[tuple[LayoutEntry, slice]]:
    """Yields the tensors of a range, the loss too, each with the part of it that is there."""
    for entry, first in zip(layout.entries, layout.starts, strict=True):
        place = slice(max(part.start - first, 0), min(part.stop - first, entry.size))
        if place.start < place.stop:
            yield entry, place


def cut_out(layout: Layout, part: slice, arrays: Arrays, prefixed: bool = False) -> dict[str, NDArray[Any]]:
    """Returns views of the parts of parameters and buffers that lie in a range, flat.

    prefixed: the names are those of an optimizer's memory, `<key>/<parameter>`, and values common to all parameters are
    kept. An array that is such a part already stays unchanged.
    """
    within = {entry.name: place for entry, place in places_in(layout, part) if entry.kind != "loss"}
    found = {}
    for key, array in arrays.items():
        name = parse_memory_owner(key) if prefixed else key
        if prefixed and not name:
            found[key] = array
        elif name in within:
            flat, place = array.reshape(-1), within[name]
            found[key] = flat if flat.size == place.stop - place.start else flat[place]
    return found


def merged_values(layout: Layout, shards: Shards, part: slice) -> Iterator[tuple[int, Vector]]:
    """Yields the merged elements of a range, a shard's at a time, each with its place in the flat vector."""
    length = layout.shards[0].stop
    indices = range(part.start // length, -(-part.stop // length))
    for index, shard in zip(indices, shards.merged(indices), strict=True):
        begin, end = layout.shards[index].start, layout.shards[index].stop
        low, high = max(part.start, begin), min(part.stop, end)
        yield low, shard[low - begin : high - begin]


def part_squares(layout: Layout, shards: Shards, part: slice) -> Vector:
    """Returns the sums of squares of the gradients' chunks in a range of squares, float64; their order is free."""
    vector = _join_merged_values(layout, shards, part)
    gradients = (
        values for entry, _, values in cut_pieces(layout, part.start, vector, vector.size) if entry.kind == "gradient"
    )
    return np.array([each for values in gradients for each in iterate_square_sums(values)], np.float64)


def clip_factor(sums: Iterable[float], limit: float) -> np.float32 | None:
    """Returns the factor for gradients whose chunks have these sums of squares, in any order; None for no clipping."""
    return compute_clip_factor(math.sqrt(math.fsum(sums)), limit)


def step_part(
    layout: Layout,
    shards: Shards,
    part: slice,
    before: Arrays,
    memory: Arrays,
    move: OptimizerStep,
    lr: float,
    clipped: np.float32 | None,
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], float]:
    """Returns parameters and buffers after the step, memory, and the merged loss (NaN outside of the first range).

    before, memory: this range's parts by `cut_out`. clipped: the factor of the gradients.
    """
    whole = not move.optimizer.ELEMENTWISE
    shapes = {entry.name: entry.shape if whole else (-1,) for entry, _ in places_in(layout, part)}
    parameters = {name: array.reshape(shapes[name]) for name, array in before.items()}
    held = {
        key: np.array(array).reshape(shapes.get(parse_memory_owner(key), array.shape)) for key, array in memory.items()
    }
    after: dict[str, NDArray[Any]] = {name: np.empty_like(array, order="C") for name, array in parameters.items()}
    step = OneStep(parameters, after, held, move.optimizer, move.settings, lr)
    step.factor = clipped
    runs = [(part.start, _join_merged_values(layout, shards, part))] if whole else merged_values(layout, shards, part)
    firsts = {entry.name: place.start for entry, place in places_in(layout, part)}
    for start, values in runs:
        pieces = cut_pieces(layout, start, values, values.size if whole else step.most)
        step.take(
            (entry, slice(place.start - firsts[entry.name], place.stop - firsts[entry.name]), piece)
            for entry, place, piece in pieces
            if piece.size
        )
    step.finish()
    kept = {key: array.reshape(-1) if parse_memory_owner(key) else array for key, array in held.items()}
    return {name: array.reshape(-1) for name, array in after.items()}, kept, step.loss


def parse_memory_owner(key: str) -> str:
    """Returns the parameter to which an array of the optimizer's memory belongs; empty where it belongs to all."""
    return key.partition("/")[2]


def _join_merged_values(layout: Layout, shards: Shards, part: slice) -> Vector:
    vector = np.empty(part.stop - part.start, np.float32)
    for start, values in merged_values(layout, shards, part):
        vector[start - part.start : start - part.start + values.size] = values
    return vector
