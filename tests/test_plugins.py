"""One contract for every file of a plug-in folder: a new one is held to it by being there."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from gradmarket.market import job, job_parts
from gradmarket.market.errors import PayloadRefused, Refused
from gradmarket.market.gradient import aggregators, codecs, optimizers
from gradmarket.market.gradient.aggregators import Band
from gradmarket.market.rules import replication, verifiers
from graphdoc import formats, plugins

Vector = NDArray[np.float32]
FOLDERS = (codecs, aggregators, optimizers, formats, replication, verifiers)
LOOKUPS = {
    codecs: codecs.load_codec,
    aggregators: aggregators.load_aggregator,
    optimizers: optimizers.load_optimizer,
    formats: formats.format_of,
    replication: replication.load_policy,
    verifiers: verifiers.load_verifier,
}
SEEDS = st.binary(min_size=32, max_size=32)
SHARDS = st.integers(0, 300).flatmap(lambda size: st.integers(0, 2**32).map(lambda seed: normal(seed, size)))


def normal(seed: int, *shape: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def found(folder: ModuleType) -> tuple[str, ...]:
    return plugins.list_plugin_names(folder.__name__)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.__name__.rpartition(".")[2])
class TestFolder:
    def test_every_file_and_nothing_else_is_a_plug_in(self, folder: ModuleType) -> None:
        files = {path.stem for path in Path(folder.__file__ or "").parent.glob("*.py")}
        assert set(found(folder)) == {name for name in files if not name.startswith("_")}
        assert found(folder)

    def test_another_name_is_refused_with_those_there_are(self, folder: ModuleType) -> None:
        for name in ("nothing", "__init__", "os", ""):
            with pytest.raises(Refused, match=found(folder)[0]):
                LOOKUPS[folder](name)

    def test_every_plug_in_has_a_docstring(self, folder: ModuleType) -> None:
        assert all(inspect.getdoc(LOOKUPS[folder](name)) for name in found(folder))

    def test_no_file_keeps_a_state(self, folder: ModuleType) -> None:
        for name in found(folder):
            values = vars(LOOKUPS[folder](name)).items()
            kept = [
                key
                for key, value in values
                if not key.startswith("__") and isinstance(value, list | dict | set | np.ndarray)
            ]
            assert kept == []

    def test_none_needs_torch(self, folder: ModuleType) -> None:
        for name in found(folder):
            module = sys.modules[LOOKUPS[folder](name).__name__]
            assert not any(getattr(value, "__name__", "").startswith("torch") for value in vars(module).values())


@pytest.mark.parametrize("name", found(codecs))
class TestCodec:
    @given(shard=SHARDS, seed=SEEDS)
    def test_the_length_is_known_from_the_count(self, name: str, shard: Vector, seed: bytes) -> None:
        codec = codecs.load_codec(name)
        assert len(codec.pack(shard, seed)) == codec.packed_bytes(shard.size)

    @given(shard=SHARDS, seed=SEEDS)
    def test_the_same_shard_and_seed_give_the_same_bytes(self, name: str, shard: Vector, seed: bytes) -> None:
        codec = codecs.load_codec(name)
        first = codec.pack(shard, seed)
        codec.pack(shard[::-1].copy(), seed)
        assert codec.pack(shard.copy(), seed) == first

    @given(shard=SHARDS, seed=SEEDS)
    def test_an_unpacked_shard_is_near_the_packed_one(self, name: str, shard: Vector, seed: bytes) -> None:
        codec = codecs.load_codec(name)
        back = codec.unpack(memoryview(codec.pack(shard, seed)), shard.size, seed)
        assert back.dtype == np.float32
        assert back.shape == shard.shape
        assert np.linalg.norm(back - shard) <= np.linalg.norm(shard)

    @given(shard=SHARDS, seed=SEEDS)
    def test_packing_leaves_the_shard_as_it_was(self, name: str, shard: Vector, seed: bytes) -> None:
        before = shard.tobytes()
        codecs.load_codec(name).pack(shard, seed)
        assert shard.tobytes() == before

    @given(shard=SHARDS, seed=SEEDS, change=st.integers(-8, 8).filter(bool))
    def test_bytes_of_another_length_are_refused(self, name: str, shard: Vector, seed: bytes, change: int) -> None:
        codec = codecs.load_codec(name)
        packed = codec.pack(shard, seed)
        wrong = packed + bytes(change) if change > 0 else packed[:change]
        if len(wrong) != len(packed):
            with pytest.raises(PayloadRefused):
                codec.unpack(memoryview(wrong), shard.size, seed)

    @given(noise=st.binary(max_size=600), count=st.integers(0, 300), seed=SEEDS)
    def test_noise_is_a_shard_or_refused(self, name: str, noise: bytes, count: int, seed: bytes) -> None:
        codec = codecs.load_codec(name)
        data = (noise * 300)[: codec.packed_bytes(count)]
        try:
            shard = codec.unpack(memoryview(data), count, seed)
        except PayloadRefused:
            return
        assert (shard.dtype, shard.shape) == (np.float32, (count,))


class Rows:
    """Answers already in memory, as a stack of one shard whose second half, from `edge` on, is no gradient."""

    addends = 18

    def __init__(self, rows: list[Vector], edge: int | None = None) -> None:
        self._rows = rows
        half = rows[0].size // 2 if edge is None else edge
        self.bands = (Band(slice(0, half), 16.0), Band(slice(half, rows[0].size), 2.0**20, False))

    def rows(self) -> Iterator[Vector]:
        return iter(self._rows)


@pytest.mark.parametrize("name", found(aggregators))
class TestAggregator:
    def merged(self, name: str, *stacks: list[Vector]) -> list[Vector]:
        aggregator = aggregators.load_aggregator(name)
        return list(aggregator.aggregate([Rows(rows) for rows in stacks], aggregator.Settings()))

    @given(seed=st.integers(0, 2**32), order=st.permutations(range(7)))
    def test_any_order_of_rows_gives_the_same_bits(self, name: str, seed: int, order: list[int]) -> None:
        rows = list(normal(seed, 7, 40))
        shuffled = [rows[index] for index in order]
        assert self.merged(name, rows)[0].tobytes() == self.merged(name, shuffled)[0].tobytes()

    @given(seed=st.integers(0, 2**32), more=st.integers(0, 8))
    def test_equal_rows_merge_to_themselves(self, name: str, seed: int, more: int) -> None:
        row, least = normal(seed, 40), aggregators.load_aggregator(name).Settings().least
        np.testing.assert_allclose(self.merged(name, [row] * (least + more))[0], row, rtol=1e-6, atol=1e-9)

    def test_fewer_answers_than_its_guarantee_needs_are_refused(self, name: str) -> None:
        settings = aggregators.load_aggregator(name).Settings()
        settings.check(settings.least, settings.least)
        with pytest.raises(Refused, match=f"takes {settings.least} to {settings.most} answers"):
            settings.check(settings.least - 1, settings.least)
        with pytest.raises(Refused, match="a round has"):
            settings.check(settings.least, settings.most + 1)

    @given(seed=st.integers(0, 2**32))
    def test_the_result_lies_among_the_rows(self, name: str, seed: int) -> None:
        rows = normal(seed, 5, 40)
        (merged,) = self.merged(name, list(rows))
        assert (merged.dtype, merged.shape) == (np.float32, (40,))
        assert (merged <= rows.max(axis=0) + 1e-6).all()
        assert (merged >= rows.min(axis=0) - 1e-6).all()

    @given(seed=st.integers(0, 2**32), cut=st.integers(1, 39))
    def test_a_shard_comes_out_for_each_stack_and_the_cut_does_not_show(self, name: str, seed: int, cut: int) -> None:
        aggregator, rows = aggregators.load_aggregator(name), list(normal(seed, 7, 40))
        whole = aggregator.aggregate([Rows(rows, 40)], aggregator.Settings())
        shards = [Rows([row[:cut] for row in rows], cut), Rows([row[cut:] for row in rows], 40 - cut)]
        first, second = aggregator.aggregate(shards, aggregator.Settings())
        assert (first.size, second.size) == (cut, 40 - cut)
        assert np.concatenate([first, second]).tobytes() == next(whole).tobytes()

    def test_unknown_settings_are_refused(self, name: str) -> None:
        assert_refuses_unknown(aggregators.load_aggregator(name).Settings)


def assert_refuses_unknown(settings: type[BaseModel]) -> None:
    assert settings() == settings()
    with pytest.raises(ValidationError):
        settings(never_heard_of=1)


@pytest.mark.parametrize("name", found(optimizers))
class TestOptimizer:
    downhill = {"lars": 20.0, "muon": 0.1, "adagrad": 0.1}
    """Rates of those whose steps are short at others' rates."""
    shapes = {"layer.weight": (6, 3), "layer.bias": (6,), "scale": (), "empty": (0, 4)}

    def drawn(self, seed: int) -> dict[str, Vector]:
        return {name: np.asarray(normal(seed, *shape), np.float32) for name, shape in self.shapes.items()}

    def settings(self, name: str) -> Any:
        """With a momentum where there is one, so that there is a memory."""
        kind = optimizers.load_optimizer(name).Settings
        return kind(momentum=0.9) if "momentum" in kind.model_fields else kind()

    def bits(self, arrays: Any) -> dict[str, bytes]:
        return {name: values.tobytes() for name, values in arrays.items()}

    def test_a_step_is_pure(self, name: str) -> None:
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        parameters, gradient = self.drawn(0), self.drawn(1)
        memory = rule.start(parameters, settings)
        given = self.bits(parameters), self.bits(gradient), self.bits(memory)
        first = rule.step(parameters, gradient, memory, 0.1, settings)
        second = rule.step(parameters, gradient, memory, 0.1, settings)
        assert [self.bits(part) for part in first] == [self.bits(part) for part in second]
        assert (self.bits(parameters), self.bits(gradient), self.bits(memory)) == given

    def test_shapes_dtypes_and_names_stay(self, name: str) -> None:
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        parameters = self.drawn(0)
        before = rule.start(parameters, settings)
        moved, memory = rule.step(parameters, self.drawn(1), before, 0.1, settings)
        for old, new in ((parameters, moved), (before, memory)):
            assert {key: (value.shape, value.dtype) for key, value in old.items()} == {
                key: (value.shape, value.dtype) for key, value in new.items()
            }

    def test_an_elementwise_step_on_parts_gives_the_parts_of_the_step(self, name: str) -> None:
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        whole, slope = np.asarray(normal(0, 11), np.float32), np.asarray(normal(1, 11), np.float32)
        step = [
            rule.step({"p": w}, {"p": g}, rule.start({"p": w}, settings), 0.1, settings)[0]["p"]
            for w, g in (
                (whole, slope),
                (whole[:4], slope[:4]),
                (whole[4:], slope[4:]),
            )
        ]
        same = step[0].tobytes() == np.concatenate(step[1:]).tobytes()
        assert same or not rule.ELEMENTWISE

    def test_an_optimizer_goes_downhill(self, name: str) -> None:
        """On f(p) = |p|^2 / 2, whose gradient is p."""
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        parameters = self.drawn(0)
        memory = rule.start(parameters, settings)
        start = sum(float(np.square(values).sum()) for values in parameters.values())
        for _ in range(50):
            parameters, memory = rule.step(parameters, parameters, memory, self.downhill.get(name, 0.02), settings)
        assert sum(float(np.square(values).sum()) for values in parameters.values()) < start / 2

    def test_rate_zero_moves_nothing(self, name: str) -> None:
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        parameters = self.drawn(0)
        moved, _ = rule.step(parameters, self.drawn(1), rule.start(parameters, settings), 0.0, settings)
        assert self.bits(moved) == self.bits(parameters)

    def test_gradients_or_memory_of_other_shapes_are_refused(self, name: str) -> None:
        rule, settings = optimizers.load_optimizer(name), self.settings(name)
        parameters, gradient = self.drawn(0), self.drawn(1)
        memory = rule.start(parameters, settings)
        wrong = [
            {**gradient, "scale": gradient["scale"].reshape(1)},
            {**gradient, "scale": gradient["scale"].astype(np.float64)},
            {**gradient, "more": gradient["scale"]},
            {key: gradient[key] for key in gradient if key != "scale"},
        ]
        for other in wrong:
            with pytest.raises(PayloadRefused):
                rule.step(parameters, other, memory, 0.1, settings)
        with pytest.raises(PayloadRefused, match="memory"):
            rule.step(parameters, gradient, {}, 0.1, settings)

    def test_unknown_settings_are_refused(self, name: str) -> None:
        assert_refuses_unknown(optimizers.load_optimizer(name).Settings)

    @given(decay=st.floats(0, 1))
    def test_decay_is_by_name(self, name: str, decay: float) -> None:
        settings = optimizers.load_optimizer(name).Settings(
            weight_decay=0.5, groups=[{"pattern": "*.bias", "weight_decay": decay}]
        )
        assert (settings.choose_weight_decay("layer.bias"), settings.choose_weight_decay("layer.weight")) == (
            decay,
            0.5,
        )


@pytest.mark.parametrize("folder", [replication, verifiers])
def test_a_policy_or_verifier_is_one_new_file(folder: ModuleType) -> None:
    """The job reads the names of the files, and contains none of them."""
    for module in (job, job_parts):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not said & set(plugins.list_plugin_names(folder.__name__))
