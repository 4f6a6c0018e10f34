"""From accepted bytes to the next model: any order, any revocation, the same bits; nothing unusable gets in."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import norm, payload_layout, round_update, shards
from gradmarket.market.gradient.aggregators import configure_aggregator, load_aggregator
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import VALUE_BOUND
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merged_shards
from gradmarket.market.gradient.round_update import ModelState, advance_model, build_model_state
from gradmarket.market.gradient.shards import Lanes
from graphdoc import plugins
from tests.kit.shards import shorten_shards
from tests.kit.whole_merge import apply_merged_answer, merge_answers
from tests.lanes import leave_to_full
from tests.market.gradient_cases import LOSS, bits, layouts, tensors_of

MEAN, FP32, SGD, ADAMW = load_aggregator("mean"), load_codec("fp32"), load_optimizer("sgd"), load_optimizer("adamw")
LAYOUT = Layout(
    (
        LOSS,
        LayoutEntry("weight", (5, 4), "gradient"),
        LayoutEntry("bias", (7,), "gradient"),
        LayoutEntry("mean", (6,), "buffer"),
    )
)


short_shards = shorten_shards(8)


def recipe(layout: Layout = LAYOUT, addends: int = 8, codec_name: str = "fp32") -> Recipe:
    return Recipe(layout, load_codec(codec_name), MEAN, MEAN.Settings(), 100.0, addends)


def answer(tensors: dict[str, Vector], layout: Layout = LAYOUT, codec_name: str = "fp32") -> MergedAnswer:
    return MergedAnswer(encode_payload(layout, tensors, load_codec(codec_name), b"task"), b"task")


def answers(count: int, layout: Layout = LAYOUT, codec_name: str = "fp32") -> list[MergedAnswer]:
    return [answer(tensors_of(layout, seed), layout, codec_name) for seed in range(count)]


def everything(tensors: dict[str, Vector]) -> dict[str, bytes]:
    return {name: bits(values) for name, values in tensors.items()}


@given(layouts(), st.permutations(range(6)), st.sampled_from(["fp32", "bf16"]))
def test_any_order_of_answers_gives_the_same_bits(layout: Layout, order: list[int], name: str) -> None:
    given_answers = answers(6, layout, name)
    first = merge_answers(recipe(layout, 8, name), given_answers)
    second = merge_answers(recipe(layout, 8, name), [given_answers[index] for index in order])
    assert everything(first) == everything(second)


@given(layouts(), st.integers(1, 8))
def test_the_merge_is_the_mean_of_every_tensor(layout: Layout, count: int) -> None:
    merged = merge_answers(recipe(layout), answers(count, layout))
    drawn = [tensors_of(layout, seed) for seed in range(count)]
    assert list(merged) == [entry.name for entry in layout.entries]
    for entry in layout.entries:
        exact = np.mean([tensors[entry.name].astype(np.float64) for tensors in drawn], axis=0)
        np.testing.assert_allclose(merged[entry.name], exact, rtol=1e-6, atol=1e-9)
        assert merged[entry.name].shape == entry.shape


def test_one_answer_is_its_own_mean() -> None:
    """Values on the grid of the sum come back unchanged, to the bit."""
    tensors = {entry.name: np.full(entry.shape, 0.3, np.float32) for entry in LAYOUT.entries}
    assert everything(merge_answers(recipe(), [answer(tensors)])) == everything(tensors)


def test_large_statistics_do_not_coarsen_and_are_not_coarsened() -> None:
    tensors = tensors_of(LAYOUT, 0)
    large = {**tensors, "mean": np.full(6, VALUE_BOUND, np.float32), "loss": np.array(1e-6, np.float32)}
    merged = merge_answers(recipe(), [answer(large), answer(large)])
    assert bits(merged["mean"]) == bits(large["mean"])
    assert merged["loss"] == np.float32(1e-6)
    np.testing.assert_allclose(merged["weight"], tensors["weight"], rtol=2e-7)


@pytest.mark.parametrize("name", ["loss", "weight", "mean"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e30])
def test_a_diverged_answer_is_never_merged(name: str, value: float) -> None:
    spoilt = tensors_of(LAYOUT, 1)
    spoilt[name].reshape(-1)[-1] = value
    with pytest.raises(PayloadRefused):
        merge_answers(recipe(), [*answers(1), answer(spoilt)])


@pytest.mark.parametrize("count", [0, 9])
def test_too_few_and_too_many_answers(count: int) -> None:
    with pytest.raises(PayloadRefused, match="1 to 8 answers"):
        merge_answers(recipe(), answers(count))


def test_a_cut_off_answer_is_refused() -> None:
    whole = answers(2)
    with pytest.raises(PayloadRefused, match="bytes, not"):
        merge_answers(recipe(), [whole[0], replace(whole[1], data=whole[1].data[:-1])])


def test_memory_is_a_model_and_shards_however_many_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**15)
    layout = Layout((LOSS, LayoutEntry("weight", (2**20,), "gradient")))
    many = answers(2, layout) * 8
    tracemalloc.start()
    merge_answers(recipe(layout, 16), many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * layout.size + 64 * 2**15


MODEL = {
    "weight": tensors_of(LAYOUT, 50)["weight"],
    "bias": tensors_of(LAYOUT, 50)["bias"],
    "mean": np.zeros(6, np.float32),
    "batches": np.array(4, np.int64),
    "positions": np.arange(3),
    "frozen": np.ones(2, np.float32),
}


def after(
    move: OptimizerStep, counters: tuple[str, ...] = ("batches",), lr: float = 0.5
) -> tuple[ModelState, dict[str, Vector]]:
    merged = merge_answers(recipe(), answers(3))
    return apply_merged_answer(LAYOUT, build_model_state(LAYOUT, MODEL, move), merged, move, lr, counters), merged


def test_parameters_move_buffers_follow_counters_count_and_the_rest_stays() -> None:
    before = everything(MODEL)
    model, merged = after(OptimizerStep(SGD, SGD.Settings()))
    assert set(model.tensors) == set(MODEL)
    assert bits(model.tensors["weight"]) == bits(MODEL["weight"] - merged["weight"] * np.float32(0.5))
    assert bits(model.tensors["mean"]) == bits(merged["mean"])
    assert model.tensors["batches"] == 5
    assert model.tensors["batches"].dtype == np.int64
    assert bits(model.tensors["positions"]) == bits(MODEL["positions"])
    assert bits(model.tensors["frozen"]) == bits(MODEL["frozen"])
    assert everything(MODEL) == before


def test_the_clip_is_before_the_optimizer_and_not_on_buffers() -> None:
    model, merged = after(OptimizerStep(SGD, SGD.Settings(), clip=0.25), lr=1.0)
    moved = [MODEL[name] - model.tensors[name] for name in ("weight", "bias")]
    assert np.sqrt(sum(np.square(change).sum() for change in moved)) == pytest.approx(0.25, rel=1e-5)
    assert bits(model.tensors["mean"]) == bits(merged["mean"])


def test_a_run_is_a_function_of_the_accepted_answers() -> None:
    def run(order: int) -> ModelState:
        move = OptimizerStep(ADAMW, ADAMW.Settings(), clip=1.0)
        model = build_model_state(LAYOUT, MODEL, move)
        for _ in range(4):
            model = apply_merged_answer(
                LAYOUT, model, merge_answers(recipe(), answers(5)[::order]), move, 0.01, ("batches",)
            )
        return model

    first, second = run(1), run(-1)
    assert everything(first.tensors) == everything(second.tensors)
    assert everything(first.memory) == everything(second.memory)
    assert first.memory["steps"] == 4
    assert first.tensors["batches"] == 8


@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize("name", plugins.list_plugin_names("gradmarket.market.gradient.optimizers"))
def test_piece_by_piece_gives_the_bits_of_whole_tensors(
    name: str, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CHUNK", 3)
    rule = load_optimizer(name)
    move = OptimizerStep(rule, rule.Settings(weight_decay=0.1), clip)
    model, names = build_model_state(LAYOUT, MODEL, move), ("weight", "bias")
    parameters, memory = {name: MODEL[name] for name in names}, model.memory
    for _ in range(3):
        merged = merge_answers(recipe(), answers(3))
        model = apply_merged_answer(LAYOUT, model, merged, move, 0.1, ("batches",))
        gradient = {name: merged[name] for name in names}
        gradient = norm.clip_gradient(gradient, clip) if clip is not None else gradient
        parameters, memory = rule.step(parameters, gradient, memory, 0.1, move.settings)
    assert everything({name: model.tensors[name] for name in names}) == everything(parameters)
    assert everything(model.memory) == everything(memory)


@pytest.mark.parametrize("held", [0, 2**20])
def test_shards_are_merged_in_place_and_clipped_whether_kept_or_merged_twice(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_update, "HELD", held)
    move = OptimizerStep(ADAMW, ADAMW.Settings(), clip=0.25)
    begun, given_answers = build_model_state(LAYOUT, MODEL, move), answers(3)
    expected = apply_merged_answer(LAYOUT, begun, merge_answers(recipe(), given_answers), move, 0.1, ("batches",))
    moved = {name: np.zeros_like(array) for name, array in MODEL.items()}
    memory = {name: array.copy() for name, array in begun.memory.items()}
    shards = merged_shards(recipe(), given_answers)
    loss = advance_model(LAYOUT, MODEL, moved, memory, shards, move, 0.1, ("batches",))
    assert everything(moved) == everything(expected.tensors)
    assert everything(memory) == everything(expected.memory)
    assert loss == float(merge_answers(recipe(), given_answers)["loss"])


@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize("rule", leave_to_full(plugins.list_plugin_names("gradmarket.market.gradient.aggregators"), 3))
@pytest.mark.parametrize("name", plugins.list_plugin_names("gradmarket.market.gradient.optimizers"))
def test_lanes_side_by_side_give_the_same_bits(name: str, rule: str, clip: float | None) -> None:
    (chosen, settings), many = configure_aggregator(rule, {}, 10, 10), answers(10)
    move = OptimizerStep(load_optimizer(name), load_optimizer(name).Settings(), clip)
    begun, how = (
        build_model_state(LAYOUT, MODEL, move),
        replace(recipe(addends=10), aggregator=chosen, settings=settings),
    )
    expected = apply_merged_answer(LAYOUT, begun, merge_answers(how, many), move, 0.1, ("batches",))
    moved = {name: np.zeros_like(array) for name, array in MODEL.items()}
    memory = {name: array.copy() for name, array in begun.memory.items()}
    with ThreadPoolExecutor(3) as pool:
        lanes = Lanes(3, pool.map)
        loss = advance_model(LAYOUT, MODEL, moved, memory, merged_shards(how, many), move, 0.1, ("batches",), lanes)
    assert everything(moved) == everything(expected.tensors)
    assert everything(memory) == everything(expected.memory)
    assert loss == float(merge_answers(how, many)["loss"])


def test_a_lane_that_meets_a_malformed_answer_ends_the_merge() -> None:
    bad = [*answers(2), MergedAnswer(answers(1)[0].data[:-1], answers(1)[0].seed)]
    move = OptimizerStep(ADAMW, ADAMW.Settings())
    moved, memory = (
        {name: np.zeros_like(array) for name, array in MODEL.items()},
        build_model_state(LAYOUT, MODEL, move).memory,
    )
    with ThreadPoolExecutor(3) as pool, pytest.raises(PayloadRefused):
        advance_model(LAYOUT, MODEL, moved, memory, merged_shards(recipe(), bad), move, 0.1, (), Lanes(3, pool.map))


def test_memory_of_an_update_is_a_few_shards_however_large_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**15)
    layout = Layout((LOSS, LayoutEntry("weight", (2**20,), "gradient")))
    move, before = OptimizerStep(ADAMW, ADAMW.Settings()), {"weight": np.ones(2**20, np.float32)}
    moved, memory, many = (
        {"weight": np.empty_like(before["weight"])},
        build_model_state(layout, before, move).memory,
        answers(2, layout),
    )
    tracemalloc.start()
    advance_model(layout, before, moved, memory, merged_shards(recipe(layout), many), move, 0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 16 * 2**15


def test_a_memory_of_another_shape_is_refused() -> None:
    move = OptimizerStep(ADAMW, ADAMW.Settings())
    begun = build_model_state(LAYOUT, MODEL, move)
    wrong = begun.memory | {"first/weight": np.zeros((4, 5), np.float32)}
    with pytest.raises(PayloadRefused, match="memory"):
        apply_merged_answer(LAYOUT, ModelState(begun.tensors, wrong), merge_answers(recipe(), answers(1)), move, 0.1)


@pytest.mark.parametrize("counters", [("weight",), ("nothing",)])
def test_only_integers_count(counters: tuple[str, ...]) -> None:
    with pytest.raises(PayloadRefused, match="no integer"):
        after(OptimizerStep(SGD, SGD.Settings()), counters)


@pytest.mark.parametrize("name", ["weight", "mean"])
def test_a_model_unlike_the_layout_does_not_begin(name: str) -> None:
    for tensors in ({**MODEL, name: MODEL[name].astype(np.float64)}, {**MODEL, name: MODEL[name][:-1]}):
        with pytest.raises(PayloadRefused, match=f"no {name}"):
            build_model_state(LAYOUT, tensors, OptimizerStep(SGD, SGD.Settings()))
    with pytest.raises(PayloadRefused, match=f"no {name}"):
        build_model_state(
            LAYOUT, {other: MODEL[other] for other in MODEL if other != name}, OptimizerStep(SGD, SGD.Settings())
        )
