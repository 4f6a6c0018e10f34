"""A round merged and applied at once: the reference for merging shard by shard and applying piece by piece."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Tensors, Vector
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.payload import check_payload_tensors, unflatten_vector
from gradmarket.market.gradient.payload_layout import (
    Layout,
)
from gradmarket.market.gradient.published_update import UpdateDraft, update_bytes
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merged_shards
from gradmarket.market.gradient.round_update import ModelState, advance_model
from gradmarket.market.gradient.shards import (
    build_shards,
    collect_shards,
)
from gradmarket.market.terms import Hash


def flatten_tensors(layout: Layout, tensors: Tensors) -> Vector:
    """Returns the flat vector, a copy. Raises PayloadRefused as `check_payload_tensors` does."""
    check_payload_tensors(layout, tensors)
    return np.concatenate([tensors[entry.name].reshape(-1) for entry in layout.entries])


def merge_answers(recipe: Recipe, answers: Sequence[MergedAnswer]) -> dict[str, Vector]:
    """Returns the merged answer: float32 tensors by name, bitwise the same in any order of the answers.

    Memory is one answer's vector and the aggregator's for a shard. Raises as `merged_shards` does.
    """
    return unflatten_vector(recipe.layout, collect_shards(recipe.layout, merged_shards(recipe, answers)))


NOWHERE: Final = Hash(bytes(32))


def apply_merged_answer(
    layout: Layout,
    model: ModelState,
    merged: Tensors,
    move: OptimizerStep,
    lr: float,
    counters: Sequence[str] = (),
    start: Hash = NOWHERE,
) -> ModelState:
    """Returns the model's state after a round: trainable parameters updated at rate `lr`, float buffers as merged.

    counters: the integer tensors that count rounds of training (`num_batches_tracked`); each is increased by one. All
    other tensors are unchanged. start: the digest of the parameters' file, which the update names where there is one.
    Raises PayloadRefused where names, shapes or dtypes do not match the layout.
    """
    vector = flatten_tensors(layout, merged)
    after = {name: np.empty_like(array, order="C") for name, array in model.tensors.items()}
    memory = {name: np.array(array, order="C") for name, array in model.memory.items()}
    update = bytearray(0 if move.downlink is None else update_bytes(layout, move.downlink))
    draft = None if move.downlink is None else UpdateDraft(move.downlink, memoryview(update), start)
    advance_model(layout, model.tensors, after, memory, build_shards(layout, vector), move, lr, counters, draft=draft)
    return ModelState(after, memory, bytes(update))
