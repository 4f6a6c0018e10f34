"""Applies a round's merged answer by the job's optimizer, piece by piece.

merged shards -> clip -> optimizer -> the next parameters
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Arrays, Vector
from gradmarket.market.gradient.norm import compute_clip_factor
from gradmarket.market.gradient.one_step import OneStep, OptimizerStep
from gradmarket.market.gradient.payload import whole_tensors
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.published_update import EXACT, UpdateDraft, select_exact_parameters
from gradmarket.market.gradient.shards import (
    ONE,
    Lanes,
    Shards,
    build_shards,
    collect_shards,
    in_lanes,
    in_order,
    iterate_shard_pieces,
)
from gradmarket.market.gradient.sums import iterate_square_sums

HELD: Final = 2**26
"""Elements of a merged answer that are kept for a second pass, where clipping needs one; more are merged twice."""


@dataclass(frozen=True)
class ModelState:
    """The state that a round changes: parameters, float buffers and counters by name, and the optimizer's memory.

    update: the last round's published update, where the job has a downlink.
    """

    tensors: Arrays
    memory: Arrays
    update: bytes = b""


def build_model_state(layout: Layout, tensors: Arrays, move: OptimizerStep) -> ModelState:
    """Returns the model's state before its first round.

    Raises PayloadRefused where a tensor of the layout is missing or has another shape or dtype.
    """
    trainable = _select_trainable(layout, tensors)
    memory = move.optimizer.start(trainable, move.settings)
    if move.downlink is not None:
        memory |= {EXACT + name: np.array(tensor, order="C") for name, tensor in trainable.items()}
    return ModelState(tensors, memory)


def advance_model(
    layout: Layout,
    before: Arrays,
    after: Arrays,
    memory: Arrays,
    shards: Shards,
    move: OptimizerStep,
    lr: float,
    counters: Sequence[str] = (),
    lanes: Lanes = ONE,
    draft: UpdateDraft | None = None,
) -> float:
    """Applies a merge piece by piece: writes `after`, changes `memory`, returns the merged loss.

    Trainable parameters are updated at rate `lr`, float buffers become as merged, and each of `counters`, integers that
    count rounds (`num_batches_tracked`), grows by one.

    shards: merges the answers, as `merged_shards` returns it; merged once more where gradients are clipped. lanes: work
    on shards side by side, where aggregator and optimizer allow it; the bits are the same. draft: the target of the
    round's published update, if the job has a downlink; `after` is then `before` with this update. Memory is a shard's
    for each lane, and the largest tensor's where clipping or the optimizer need whole tensors. Raises
    PayloadRefused where names, shapes or dtypes do not match the layout, and as `shards` does; `after` and `memory` are
    invalid then.
    """
    parameters, target = _select_trainable(layout, before), after
    if draft is not None:
        draft.begin()
        parameters = select_exact_parameters(memory)
        target = {**after, **parameters}
    own = {key: array for key, array in memory.items() if draft is None or not key.startswith(EXACT)}
    update = OneStep(parameters, target, own, move.optimizer, move.settings, lr)
    if move.clip is not None:
        # shards are computed twice where they are many, and else kept
        shards = shards if layout.size > HELD else build_shards(layout, collect_shards(layout, shards, lanes))
        whole = whole_tensors(layout, in_order(layout, shards))
        lengths = (each for entry, values in whole if entry.kind == "gradient" for each in iterate_square_sums(values))
        update.factor = compute_clip_factor(math.sqrt(math.fsum(lengths)), move.clip)

    def publish(index: int) -> None:
        if draft is not None:
            draft.publish(layout, index, before, after, parameters, update.loss)

    def take(index: int, shard: Vector) -> None:
        update.take(iterate_shard_pieces(layout, index, shard, update.most))
        publish(index)

    if move.optimizer.ELEMENTWISE:
        in_lanes(layout, shards, lanes, take)
    else:
        update.take_whole(whole_tensors(layout, in_order(layout, shards)))
        deque(map(publish, range(len(layout.shards))), maxlen=0)
    update.finish()
    # tensors that no payload has: counters increased by one, and the others unchanged
    more = {name: increase_counter(name, before) for name in counters}
    for name in before.keys() - {entry.name for entry in layout.entries[1:]}:
        after[name][...] = more.get(name, before[name])
    return update.loss


def _select_trainable(layout: Layout, tensors: Arrays) -> dict[str, Vector]:
    for entry in (*layout.of("gradient"), *layout.of("buffer")):
        tensor = tensors.get(entry.name)
        if tensor is None or tensor.shape != entry.shape or tensor.dtype != np.float32:
            raise PayloadRefused(f"the model has no {entry.name} of float32{entry.shape}")
    return {entry.name: tensors[entry.name] for entry in layout.of("gradient")}


def increase_counter(name: str, tensors: Arrays) -> NDArray[Any]:
    """Returns an integer buffer one higher. Raises PayloadRefused where there is none of this name."""
    counter = tensors.get(name)
    if counter is None or not np.issubdtype(counter.dtype, np.integer):
        raise PayloadRefused(f"the model has no integer {name}")
    return np.asarray(counter + counter.dtype.type(1))
