"""A merge cut into parts has the bits of one merge: squares, steps, memory and loss, wherever it is cut."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import TensorsRefused
from gradmarket.market.features import part_merges
from gradmarket.market.gradient import payload_layout
from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.noise import Noise
from gradmarket.market.gradient.norm import square_sums
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import encode_payload
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merged_shards
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.gradient.shards import Shards
from graphdoc import tensors
from tests.kit.shards import shorten_shards
from tests.kit.whole_merge import apply_merged_answer, merge_answers
from tests.market.gradient_cases import layouts, tensors_of

CLIPS = st.sampled_from([None, 1e-3])
NOISES = st.sampled_from([None, Noise(3.0, bytes(32))])


short_shards = shorten_shards(8)


def merged(
    layout: Layout, count: int = 3, codec_name: str = "fp32", noise: Noise | None = None
) -> tuple[Shards, dict[str, Any]]:
    mean, used = load_aggregator("mean"), load_codec(codec_name)
    recipe = Recipe(layout, used, mean, mean.Settings(), 100.0, count, noise)
    answers = [
        MergedAnswer(encode_payload(layout, tensors_of(layout, seed), used, b"task"), b"task") for seed in range(count)
    ]
    return merged_shards(recipe, answers), merge_answers(recipe, answers)


def covered(layout: Layout, ranges: list[slice]) -> bool:
    edges = [0, *(part.stop for part in ranges)]
    return [part.start for part in ranges] == edges[:-1] and edges[-1] == layout.size


def joined(pieces: list[dict[str, Any]], like: dict[str, Any]) -> dict[str, bytes]:
    found = {key: bytearray() for key in like}
    for part in pieces:
        for key, array in part.items():
            found[key] += array.tobytes() if array.shape or not found[key] else b""
    return {key: bytes(value) for key, value in found.items()}


@pytest.mark.parametrize("name", ["adafactor", "adamw", "nesterov", "sgd", "lamb", "lars", "muon"])
@given(layout=layouts(), most=st.integers(1, 60), clip=CLIPS, rounds=st.integers(1, 3), noise=NOISES)
def test_steps_in_parts_are_the_step(
    name: str, layout: Layout, most: int, clip: float | None, rounds: int, noise: Noise | None
) -> None:
    rule = load_optimizer(name)
    move = OptimizerStep(rule, rule.Settings(), clip)
    shards, whole = merged(layout, noise=noise)
    before = {entry.name: tensors_of(layout, 9)[entry.name] for entry in layout.entries[1:]}
    model = build_model_state(layout, before, move)
    ranges = part_merges.step_ranges(layout, rule, most)
    assert covered(layout, ranges)
    memories = [part_merges.cut_out(layout, part, model.memory, prefixed=True) for part in ranges]
    for _ in range(rounds):
        factor = None if clip is None else part_merges.clip_factor(squares_of(layout, shards, most), clip)
        done = [
            part_merges.step_part(
                layout, shards, part, part_merges.cut_out(layout, part, model.tensors), memory, move, 0.1, factor
            )
            for part, memory in zip(ranges, memories, strict=True)
        ]
        model = apply_merged_answer(layout, model, whole, move, 0.1)
        memories = [memory for _, memory, _ in done]
        expected = {key: array.tobytes() for key, array in model.tensors.items()}
        assert joined([after for after, _, _ in done], dict(model.tensors)) == expected
        if any(entry.kind == "gradient" and entry.size for entry in layout.entries):
            expected = {key: array.tobytes() for key, array in model.memory.items()}
            assert joined(memories, dict(model.memory)) == expected
        assert done[0][2] == whole["loss"]


def squares_of(layout: Layout, shards: Shards, most: int) -> list[float]:
    ranges = part_merges.square_ranges(layout, most)
    assert covered(layout, ranges)
    return [each for part in ranges for each in part_merges.part_squares(layout, shards, part)]


@pytest.mark.parametrize("most", [1, 2**15, 100_000])
def test_squares_in_parts_are_those_of_the_tensors(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 2**14)
    sizes = {"a": 3, "b": 70_000, "c": 2**15, "d": 1}
    entries = (LayoutEntry(name, (size,), "gradient") for name, size in sizes.items())
    layout = Layout((LayoutEntry("loss", (), "loss"), *entries, LayoutEntry("m", (50_000,), "buffer")))
    shards, whole = merged(layout)
    expected = [each for name in sizes for each in square_sums(whole[name].reshape(-1))]
    assert squares_of(layout, shards, most) == expected


def test_a_part_is_not_larger_than_asked() -> None:
    entries = (LayoutEntry(f"w{number}", (5, 5), "gradient") for number in range(9))
    layout = Layout((LayoutEntry("loss", (), "loss"), *entries))
    adamw, lamb = load_optimizer("adamw"), load_optimizer("lamb")
    assert {part.stop - part.start for part in part_merges.step_ranges(layout, adamw, 16)} == {16, 226 % 16}
    assert max(part.stop - part.start for part in part_merges.step_ranges(layout, lamb, 60)) == 51


def test_the_places_of_a_file_are_those_of_its_arrays() -> None:
    packed = tensors.pack_tensors({"b": np.arange(3, dtype=np.float32), "a": np.array(7, np.int64)})
    found = {name: packed[place] for name, place in tensors.locate_tensors(packed).items()}
    assert found == {"a": np.array(7, np.int64).tobytes(), "b": np.arange(3, dtype=np.float32).tobytes()}
    with pytest.raises(TensorsRefused):
        tensors.locate_tensors(packed + b"\0")


def test_a_file_in_chunks_is_the_packed_one() -> None:
    held = {"first/b": np.arange(3, dtype=np.float32), "first/a.w": np.zeros(0, np.float32)}
    held |= {"steps": np.array(7, np.int64), "n": np.array([1, 2], np.int64)}
    assert b"".join(tensors.pack_in_chunks(held)) == tensors.pack_tensors(held)
    assert b"".join(tensors.pack_in_chunks({})) == tensors.pack_tensors({})
