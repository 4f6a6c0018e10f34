"""A round's update in few bytes: a follower has the published parameters, which follow the exact ones."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import codecs, payload_layout
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.published_update import (
    HEAD,
    UpdateDraft,
    apply_published_update,
    count_worthwhile_updates,
    select_exact_parameters,
    update_bytes,
)
from gradmarket.market.gradient.round_update import ModelState, advance_model, build_model_state
from gradmarket.market.gradient.shards import Lanes, build_shards
from gradmarket.market.terms import Hash
from graphdoc import plugins
from tests.kit.shards import shorten_shards
from tests.kit.whole_merge import apply_merged_answer, flatten_tensors
from tests.lanes import leave_to_full
from tests.market.gradient_cases import LOSS, bits, layouts, tensors_of

SMALL = [name for name in plugins.list_plugin_names(codecs.__name__) if load_codec(name).GRADIENTS_ONLY]
OPTIMIZERS = plugins.list_plugin_names("gradmarket.market.gradient.optimizers")
START = Hash(b"the digest of what is changed...")
LAYOUT = Layout(
    (
        LOSS,
        LayoutEntry("weight", (30, 9), "gradient"),
        LayoutEntry("bias", (70,), "gradient"),
        LayoutEntry("mean", (6,), "buffer"),
    )
)
COUNTERS = ("batches",)


short_shards = shorten_shards(128)


def step(name: str, downlink: str | None, rule: str = "sgd", clip: float | None = None) -> OptimizerStep:
    chosen = load_optimizer(rule)
    return OptimizerStep(chosen, chosen.Settings(), clip, load_codec(downlink or name) if downlink else None)


def first(layout: Layout = LAYOUT) -> dict[str, Any]:
    own = {name: array for name, array in tensors_of(layout, 99).items() if name != "loss"}
    return own | {"batches": np.array(3, np.int64), "frozen": np.arange(4, dtype=np.float32)}


def everything(arrays: Any) -> dict[str, bytes]:
    return {name: bits(array) for name, array in sorted(arrays.items())}


def played(move: OptimizerStep, rounds: int = 4, layout: Layout = LAYOUT, scale: float = 1.0) -> list[ModelState]:
    states = [build_model_state(layout, first(layout), move)]
    for number in range(rounds):
        merged = tensors_of(layout, number, scale)
        states.append(apply_merged_answer(layout, states[-1], merged, move, 0.1, COUNTERS, START))
    return states


def copied(arrays: Any) -> dict[str, Any]:
    return {name: np.array(array) for name, array in arrays.items()}


def norm(vectors: list[Vector]) -> float:
    return float(np.sqrt(sum(np.square(vector.astype(np.float64)).sum() for vector in vectors)))


@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("downlink", leave_to_full(SMALL, 3))
def test_the_exact_parameters_take_the_steps_of_the_optimizer_alone(
    downlink: str, name: str, clip: float | None
) -> None:
    """The codes' error is in exact minus published: nothing is lost, with any codec."""
    alone, sent = played(step("", None, name, clip))[-1], played(step("", downlink, name, clip))[-1]
    found = select_exact_parameters(sent.memory)
    assert everything(found) == everything({name: alone.tensors[name] for name in ("weight", "bias")})
    rest = {key: array for key, array in sent.memory.items() if not key.startswith("exact/")}
    assert everything(rest) == everything(alone.memory)
    for key in ("mean", "batches", "frozen"):
        assert bits(sent.tensors[key]) == bits(alone.tensors[key])


@given(layouts(), st.sampled_from(SMALL), st.sampled_from(OPTIMIZERS), st.integers(0, 9))
def test_a_follower_of_the_updates_has_the_published_bits(layout: Layout, downlink: str, name: str, seed: int) -> None:
    move = step("", downlink, name)
    states = [build_model_state(layout, first(layout), move)]
    for number in range(3):
        merged = tensors_of(layout, seed + number)
        states.append(apply_merged_answer(layout, states[-1], merged, move, 0.1, COUNTERS, START))
    held = copied(states[0].tensors)
    for state in states[1:]:
        assert len(state.update) == update_bytes(layout, load_codec(downlink))
        apply_published_update(layout, load_codec(downlink), held, START, state.update, COUNTERS)
        assert everything(held) == everything(state.tensors)


@given(st.lists(st.lists(st.integers(-100, 100), min_size=64, max_size=64), min_size=1, max_size=4))
def test_where_the_codec_is_exact_the_published_parameters_are_the_exact_ones(steps: list[list[int]]) -> None:
    layout, move = Layout((LOSS, LayoutEntry("w", (64,), "gradient"))), step("", "int8")
    state = build_model_state(layout, {"w": np.zeros(64, np.float32)}, move)
    for number, gradient in enumerate(steps):
        merged = {"loss": np.array(0, np.float32), "w": np.array(gradient, np.float32)}
        state = apply_merged_answer(layout, state, merged, move, 1.0, (), START)
        assert state.tensors["w"].tolist() == select_exact_parameters(state.memory)["w"].tolist()
        assert state.tensors["w"].tolist() == [-sum(column) for column in zip(*steps[: number + 1], strict=True)]


@given(st.sampled_from(SMALL), st.integers(0, 1000))
def test_the_error_left_out_of_updates_stays_bounded(downlink: str, seed: int) -> None:
    """With q the largest share that a code leaves out: |e'| <= q (|e| + |step|), so |e| <= q / (1 - q) max |step|."""
    move, names = step("", downlink), ("weight", "bias")
    state, shares, steps = build_model_state(LAYOUT, first(), move), [0.0], [0.0]
    for number in range(40):
        merged = tensors_of(LAYOUT, seed + number)
        after = apply_merged_answer(LAYOUT, state, merged, move, 0.1, COUNTERS, START)
        wanted = [select_exact_parameters(after.memory)[name] - state.tensors[name] for name in names]
        left = norm([select_exact_parameters(after.memory)[name] - after.tensors[name] for name in names])
        shares.append(left / norm(wanted))
        steps.append(
            norm(
                [
                    select_exact_parameters(after.memory)[name] - select_exact_parameters(state.memory)[name]
                    for name in names
                ]
            )
        )
        q = max(shares)
        assert q < 1
        assert left <= q / (1 - q) * max(steps) * (1 + 1e-4)
        state = after


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("downlink", SMALL)
def test_lanes_side_by_side_give_the_same_bits(downlink: str, name: str) -> None:
    move, merged = step("", downlink, name, 0.25), tensors_of(LAYOUT, 1)
    begun = build_model_state(LAYOUT, first(), move)
    expected = apply_merged_answer(LAYOUT, begun, merged, move, 0.1, COUNTERS, START)
    moved, memory, data = copied(begun.tensors), copied(begun.memory), bytearray(len(expected.update))
    draft = UpdateDraft(load_codec(downlink), memoryview(data), START)
    with ThreadPoolExecutor(3) as pool:
        shards, lanes = build_shards(LAYOUT, flatten_tensors(LAYOUT, merged)), Lanes(3, pool.map)
        advance_model(LAYOUT, begun.tensors, moved, memory, shards, move, 0.1, COUNTERS, lanes, draft)
    assert (everything(moved), everything(memory)) == (everything(expected.tensors), everything(expected.memory))
    assert bytes(data) == expected.update


@pytest.mark.parametrize("downlink", SMALL)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_infinite_values_are_published_and_followed_to_the_same_bits(downlink: str, value: float) -> None:
    move = step("", downlink)
    state = build_model_state(LAYOUT, first(), move)
    held = copied(state.tensors)
    for _ in range(2):
        merged = tensors_of(LAYOUT, 1)
        merged["bias"][3] = value
        with np.errstate(over="ignore", invalid="ignore"):
            state = apply_merged_answer(LAYOUT, state, merged, move, 2.0, COUNTERS, START)
        apply_published_update(LAYOUT, load_codec(downlink), held, START, state.update, COUNTERS)
        assert everything(held) == everything(state.tensors)
    assert not np.isfinite(state.tensors["bias"][:64]).all()
    assert np.isfinite(state.tensors["weight"][:10]).all()
    broken = state.tensors["bias"][np.isnan(state.tensors["bias"])]
    assert set(broken.view(np.uint32).tolist()) <= {0x7FC00000}


@pytest.mark.parametrize("downlink", SMALL)
def test_a_round_that_changes_nothing_publishes_nothing_new(downlink: str) -> None:
    move = step("", downlink)
    begun = build_model_state(LAYOUT, first(), move)
    still = {name: np.zeros_like(array) for name, array in tensors_of(LAYOUT, 1).items()}
    after = apply_merged_answer(LAYOUT, begun, still, move, 0.1, (), START)
    for name in ("weight", "bias"):
        assert bits(after.tensors[name]) == bits(begun.tensors[name])


def test_memory_of_following_is_a_few_shards_however_large_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**15)
    layout = Layout((LOSS, LayoutEntry("weight", (2**20,), "gradient")))
    move = step("", "int8")
    begun = build_model_state(layout, {"weight": np.ones(2**20, np.float32)}, move)
    after = apply_merged_answer(layout, begun, tensors_of(layout, 1), move, 0.1, (), START)
    held, memory = copied(begun.tensors), copied(begun.memory)
    shards, moved = build_shards(layout, flatten_tensors(layout, tensors_of(layout, 1))), copied(begun.tensors)
    draft = UpdateDraft(load_codec("int8"), memoryview(bytearray(len(after.update))), START)
    tracemalloc.start()
    apply_published_update(layout, load_codec("int8"), held, START, after.update)
    advance_model(layout, begun.tensors, moved, memory, shards, move, 0.1, draft=draft)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 16 * 2**15
    assert everything(held) == everything(after.tensors) == everything(moved)


def test_an_update_of_another_start_length_or_model_is_refused() -> None:
    move = step("", "int8")
    begun, after = played(move, 1)
    apply_published_update(LAYOUT, load_codec("int8"), copied(begun.tensors), START, after.update, COUNTERS)

    def refused(reason: str, tensors: Any, update: bytes, start: Hash = START) -> None:
        with pytest.raises(PayloadRefused, match=reason):
            apply_published_update(LAYOUT, load_codec("int8"), tensors, start, update, COUNTERS)

    refused("other parameters", copied(begun.tensors), after.update, Hash(bytes(32)))
    refused("other parameters", copied(begun.tensors), b"")
    refused("bytes", copied(begun.tensors), after.update[:-1])
    refused("bytes", copied(begun.tensors), after.update + b"0")
    spoiled = bytearray(after.update)
    spoiled[HEAD + 4 + 2 + 1] = 0x80  # after the loss and the exponents of the first shard's two blocks
    refused("no code of int8", copied(begun.tensors), bytes(spoiled))
    for name, other in (("bias", np.zeros(3, np.float32)), ("mean", np.zeros(6)), ("batches", np.zeros((), "f4"))):
        refused(name, copied(begun.tensors) | {name: other}, after.update)
        rest = copied(begun.tensors)
        del rest[name]
        refused(name, rest, after.update)


@pytest.mark.parametrize(("downlink", "most", "updates"), [("int8", 1.1, 3), ("int4", 0.55, 7), ("two_bit", 0.35, 12)])
def test_an_update_takes_few_bytes_and_so_many_are_worth_it(
    downlink: str, most: float, updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**20)
    count = 10**6
    layout = replace(LAYOUT, entries=(LOSS, LayoutEntry("w", (count,), "gradient")))
    length = update_bytes(layout, load_codec(downlink))
    assert length <= most * count
    assert count_worthwhile_updates(layout, load_codec(downlink)) == updates
    assert updates * length < 4 * count <= (updates + 1) * length


@given(st.sampled_from(SMALL), st.data())
def test_a_spoiled_update_is_read_or_refused(downlink: str, data: st.DataObject) -> None:
    begun, after = played(step("", downlink), 1)
    spoiled = bytearray(after.update)
    places = st.integers(HEAD, len(spoiled) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=20)):
        spoiled[place] = value
    held = copied(begun.tensors)
    try:
        apply_published_update(LAYOUT, load_codec(downlink), held, START, bytes(spoiled), COUNTERS)
    except PayloadRefused:
        return
    assert {name: (array.shape, array.dtype) for name, array in held.items()} == {
        name: (array.shape, array.dtype) for name, array in begun.tensors.items()
    }
