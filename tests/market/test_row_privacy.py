"""DP-SGD by row: a step's disclosure of one row, refusals before any is read, and attacks with and without it."""

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import nn

from fuzz.calls.arrays import Arrays as TensorsOfACall
from fuzz.calls.making import CPU, called, given_of, gradients, without_elements
from fuzz.calls.recipes import honest
from gradmarket.market.errors import DocumentRefused, Refused
from gradmarket.market.features.private.holder_budget import compute_epsilon
from gradmarket.market.features.private.row_budget import build_row_spending, count_affordable_uses
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import stopping
from gradmarket.market.step import GradientStep, LocalStep, RowPrivacy, Step
from gradmarket.runner.drawn_rows import build_drawn_counts
from gradmarket.runner.row_noise import clipped_sum
from gradmarket.runner.steps import compute_step
from graphdoc.document.bound import compute_bound
from graphdoc.document.calls import OPERATORS
from graphdoc.document.interpret import STEP_ERRORS, Program, Results
from graphdoc.document.row_calls import build_unfailing_arguments
from graphdoc.document.schema import parse_document
from graphdoc.export import export_module
from graphdoc.operators import ALLOWED
from tests.lanes import FULL, leave_to_full

Arrays = dict[str, np.ndarray]
SEED = bytes(range(32))
CLIP, ROWS, QUIET = 4.0, 12, 0.008
LEAST = {"clip_norm": CLIP, "noise_multiplier": QUIET, "epsilon": 1e4, "delta": 0.5}
"""Hardly any noise, and a bound that promises nothing: the effect of clipping alone."""
SPENT = {"clip_norm": CLIP, "noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-5}


def parse_step(**changes: Any) -> GradientStep | LocalStep:
    step: GradientStep | LocalStep = TypeAdapter(Step).validate_python({"rows": ROWS, "per_row": LEAST} | changes)
    return step


class Scene:
    """A module as a document, with rows to compute on."""

    def __init__(self, module: nn.Module, x: np.ndarray, y: np.ndarray) -> None:
        made = export_module(module, nn.functional.cross_entropy, {"x": x, "y": y})
        self.program, self.state, self.batch = Program(parse_document(made.document)), made.parameters, {"x": x, "y": y}

    def answer(self, step: GradientStep | LocalStep, seed: bytes = SEED, **changed: np.ndarray) -> Arrays:
        return compute_step(self.program, self.state, self.batch | changed, seed, step)

    def gradient(self, answer: Arrays) -> np.ndarray:
        names = [entry.name for entry in build_layout(self.program.document).of("gradient")]
        return np.concatenate([answer[name].reshape(-1) for name in names])

    def of_row(self, at: int) -> np.ndarray:
        """The gradient of a row by itself, computed as every job computes one."""
        alone = {name: array[at : at + 1] for name, array in self.batch.items()}
        return self.gradient(compute_step(self.program, self.state, alone, SEED, GradientStep(rows=1)))


@pytest.fixture(scope="module")
def scene() -> Scene:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    module = nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    x = rng.normal(size=(ROWS, 20)).astype(np.float32)
    return Scene(module, x, rng.integers(0, 4, ROWS))


def length(vector: np.ndarray) -> float:
    return compute_norm([np.ascontiguousarray(vector, np.float32)])


@pytest.mark.parametrize("microbatch", [None, 5])
def test_the_sum_is_that_of_the_rows_clipped_one_by_one(scene: Scene, microbatch: int | None) -> None:
    rows = [scene.of_row(at) for at in range(ROWS)]
    lengths = [length(row) for row in rows]
    assert min(lengths) < CLIP < max(lengths)
    expected = sum(row * min(1.0, CLIP / one) for row, one in zip(rows, lengths, strict=True)) / ROWS
    found = scene.answer(parse_step(microbatch=microbatch))
    np.testing.assert_allclose(scene.gradient(found), expected, atol=6 * QUIET * CLIP / ROWS)
    assert found["loss"] == 0.0, "the loss has no noise, so none is told"


def test_the_noise_has_the_deviation_that_is_accounted(scene: Scene) -> None:
    quiet, noised = (
        scene.gradient(scene.answer(parse_step(per_row=LEAST | {"noise_multiplier": z}))) for z in (QUIET, 8.0)
    )
    drawn = (noised - quiet) * ROWS / CLIP / (8.0 - QUIET)
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-3
    other = scene.gradient(scene.answer(parse_step(per_row=LEAST | {"noise_multiplier": 8.0}), seed=bytes(32)))
    again = (other - quiet) * ROWS / CLIP / 8.0
    assert abs(np.corrcoef(drawn, again)[0, 1]) < 0.2, "another seed, other noise"


@pytest.mark.parametrize("value", [0.0, 1e4, 1e30, np.inf, np.nan])
def test_one_row_moves_the_sum_by_no_more_than_the_clip_norm(scene: Scene, value: float) -> None:
    """With the same noise on both sides, whatever the row is; against one whose gradient is zeros, which is a NaN's."""
    x = scene.batch["x"].copy()
    x[3] = np.nan
    without = scene.gradient(scene.answer(parse_step(), x=x))
    x = x.copy()
    x[3] = value
    moved = (scene.gradient(scene.answer(parse_step(), x=x)) - without) * ROWS
    assert np.isfinite(moved).all()
    assert length(moved) <= CLIP


LARGEST = float(np.finfo(np.float32).max)
HALF_A_DENORMAL = 0.5001 * 2.0**-149
"""A number that float32 rounds up to its least one."""
numbers = st.one_of(
    st.floats(width=32), st.sampled_from([LARGEST, -LARGEST, 1.43e38, 1e-45, -1e-40, 1.2e-38, 0.0, 1.0, np.inf, np.nan])
)


@given(
    st.floats(1e-6, 1e9),
    st.lists(numbers, min_size=1, max_size=8),
    st.integers(1, 4096),
    st.lists(st.floats(0, 1e6, width=32), max_size=64),
)
@example(1e-6, [1e-6 / HALF_A_DENORMAL / 64], 4096, [])
@example(1.0, [LARGEST], 4096, [])
@example(1.0, [np.nan, LARGEST], 1, [1.0])
@example(1e-6, [1e-45, -1e-45], 4096, [1e6] * 64)
def test_no_row_has_a_part_longer_than_the_clip_norm(
    limit: float, values: list[float], times: int, others: list[float]
) -> None:
    """Alone, and as its change of a sum with others; in float64, where neither its scale nor its part vanishes."""
    row = torch.tensor(values, dtype=torch.float32).repeat(times)
    rest = torch.tensor(others, dtype=torch.float32)[:, None].expand(len(others), len(row))
    cut = max(1, len(row) // 2)

    def total(rows: torch.Tensor) -> torch.Tensor:
        parts = clipped_sum({"first": rows[:, :cut], "second": rows[:, cut:]}, limit)
        assert all(part.dtype == torch.float64 for part in parts.values())
        return torch.cat(list(parts.values()))

    alone = total(row[None])
    beside = total(torch.cat([rest, row[None]])) - total(torch.cat([rest, torch.zeros_like(row)[None]]))
    assert float(torch.linalg.vector_norm(alone)) <= limit
    assert float(torch.linalg.vector_norm(beside)) <= limit
    if not row.isfinite().all():
        assert not alone.any(), "a row that is not finite has no part"


@pytest.mark.parametrize(("drawn", "microbatch"), leave_to_full([(0, None), (5, None), (5, 7), (ROWS, 7), (28, 7)], 2))
def test_rows_that_fill_a_batch_count_as_zeros_and_cost_the_same(
    scene: Scene, drawn: int, microbatch: int | None
) -> None:
    """Of the 28 rows that a step of 12 in the mean has room for: hostile ones in the rest change no bit."""
    step = parse_step(microbatch=microbatch, per_row=LEAST | {"sampling": "poisson"})
    assert step.room == 28
    x, y = (np.resize(array, (28, *array.shape[1:])) for array in (scene.batch["x"], scene.batch["y"]))
    program, runs, found = Counting(scene.program.document), [], []
    for filling in (0.0, np.nan, 1e30):
        x, program.runs = x.copy(), 0
        x[drawn:] = filling
        state = scene.state | build_drawn_counts([drawn])
        found.append(scene.gradient(compute_step(program, state, {"x": x, "y": y}, SEED, step)))
        runs.append(program.runs)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert set(runs) == {1 if microbatch is None else 4}
    rows = [scene.of_row(at % ROWS) for at in range(drawn)]
    clipped = sum((row * min(1.0, CLIP / length(row)) for row in rows), np.zeros_like(found[0]))
    np.testing.assert_allclose(found[0], clipped / ROWS, atol=6 * QUIET * CLIP / ROWS)


def test_a_step_over_drawn_rows_needs_their_number(scene: Scene) -> None:
    batch = {name: np.resize(array, (28, *array.shape[1:])) for name, array in scene.batch.items()}
    with pytest.raises(Refused, match="needs how many it drew"):
        compute_step(scene.program, scene.state, batch, SEED, parse_step(per_row=LEAST | {"sampling": "poisson"}))


def test_local_steps_count_what_each_of_them_drew(scene: Scene) -> None:
    """Two steps of which the first drew nothing, so that with hardly any noise it moves nothing."""
    inner = {"kind": "local", "steps": 2, "optimizer": {"name": "sgd", "lr": 0.1}}
    step = parse_step(per_row=LEAST | {"sampling": "poisson"}, **inner)
    batch = {name: np.resize(array, (56, *array.shape[1:])) for name, array in scene.batch.items()}
    counts = [[0, ROWS], [ROWS, 0], [0, 0]]
    first, second, none = (
        scene.gradient(compute_step(scene.program, scene.state | build_drawn_counts(one), batch, SEED, step))
        for one in counts
    )
    assert length(none) < 0.15 * length(first), "noise alone"
    np.testing.assert_allclose(first, second, atol=0.1 * 12 * QUIET * CLIP / ROWS)


def test_a_short_row_is_in_the_sum_as_it_is() -> None:
    row = torch.tensor([[3.0, -4.0]])
    assert clipped_sum({"w": row}, 6.0)["w"].tolist() == [3.0, -4.0]
    assert clipped_sum({"w": row}, 1.0)["w"].tolist() == pytest.approx([0.6, -0.8], rel=1e-4)


class Counting(Program):
    """A document that knows how often it was run."""

    runs = 0

    def run(self, *arguments: Any, **named: Any) -> Results:
        self.runs += 1
        return super().run(*arguments, **named)


def test_an_index_out_of_its_range_is_the_nearest_in_it_and_costs_the_same_work() -> None:
    """A failed step, or one that goes on row by row, would disclose the row without noise: by its time."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    made = Scene(
        nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(24, 3)),
        rng.integers(0, 9, (ROWS, 3)), rng.integers(0, 3, ROWS),
    )  # fmt: skip
    made.program = Counting(made.program.document)
    found, runs = {}, []
    for beyond, within in ((1000, 8), (-7, 0), (2**62, 8)):
        for value in (beyond, within):
            x, y = made.batch["x"].copy(), made.batch["y"].copy()
            x[5, 1] = value
            y[3] = 2 if value in (8, 0) else 77
            made.program.runs = 0
            found[value] = made.answer(parse_step(), x=x, y=y)
            runs.append(made.program.runs)
        for name in found[within]:
            np.testing.assert_array_equal(found[beyond][name], found[within][name])
    assert set(runs) == {runs[0]}


class Computed(nn.Module):
    """Reads a table at an index computed from a row's floats."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.out(self.table((4 * x[:, 0].sigmoid()).long())))


@pytest.mark.parametrize("value", [99.0, -1e30, np.inf, np.nan])
def test_an_index_that_is_computed_from_a_row_fails_for_none(value: float) -> None:
    torch.manual_seed(0)
    x = np.zeros((ROWS, 2), np.float32)
    made = Scene(Computed(), x, np.zeros(ROWS, np.int64))
    without = made.gradient(made.answer(parse_step()))
    x = x.copy()
    x[7, 0] = value
    moved = (made.gradient(made.answer(parse_step(), x=x)) - without) * ROWS
    assert np.isfinite(moved).all()
    assert length(moved) <= 2 * CLIP, "one row's part is exchanged for another"


HOSTILE = {
    True: [np.nan, np.inf, -np.inf, 0.0, 3e38, -1.0, 2.5, 1e-45],
    False: [-(2**63), 2**63 - 1, 0, 1, 7, -1, -100],
}
HONEST_CALLS = 6


@pytest.mark.parametrize("key", leave_to_full(sorted(ALLOWED), 30))
def test_no_element_makes_an_operator_fail_where_rows_are_computed_apart(key: str) -> None:
    """Honest calls that are taken, with other elements in their tensors: refused from shapes alone, or taken too."""
    for number in range(HONEST_CALLS):
        chance, operator = Random(f"{key} {number}"), OPERATORS[key]
        arguments = TensorsOfACall(0x5A).made(given_of(operator, honest(key, chance)))
        hostile = other_elements(arguments, chance)
        try:
            build_unfailing_arguments(operator, without_elements(arguments))
            gradients(called(operator, arguments, CPU), arguments)
        except (DocumentRefused, *STEP_ERRORS):
            continue  # a job with this node is refused, or fails whatever its rows are
        taken = list(build_unfailing_arguments(operator, hostile))
        gradients(called(operator, taken, CPU), taken)


def other_elements(value: Any, chance: Random) -> Any:
    """The same argument with hostile numbers in its tensors, one or several in each; masks are others."""
    if isinstance(value, list):
        return [other_elements(part, chance) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    floats, masks = value.dtype.is_floating_point, value.dtype == torch.bool
    least, most = (0, 1) if masks or floats else (torch.iinfo(value.dtype).min, torch.iinfo(value.dtype).max)
    palette = [one if floats else min(max(int(one), least), most) for one in HOSTILE[floats]]
    palette = chance.choice([palette, [chance.choice(palette)]])
    drawn = torch.tensor([chance.choice(palette) for _ in range(value.numel())], dtype=value.dtype)
    return drawn.reshape(value.shape).requires_grad_(value.requires_grad)


class Failing(nn.Module):
    """Computes with each row by `way`, which fails for some values."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.out = way, nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.out(self.way(x)))


FAILING_WAYS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "a remainder of whole numbers": (
        lambda x: (x.long() % x.long().clamp(1)).float(),
        r"node \d+ \(remainder.*whole numbers are divided",
    ),
    "a quotient of whole numbers": (lambda x: (x.long() // x.long().clamp(1)).float(), "whole numbers are divided"),
    "a cross entropy of a probability": (
        lambda x: nn.functional.binary_cross_entropy(x.sigmoid(), x.sigmoid(), reduction="none"),
        r"node \d+ \(binary_cross_entropy.*use binary_cross_entropy_with_logits",
    ),
}


@pytest.mark.parametrize("name", FAILING_WAYS)
def test_an_operator_that_fails_for_some_rows_is_refused_from_its_shapes(name: str) -> None:
    way, said = FAILING_WAYS[name]
    made = Scene(Failing(way), np.full((8, 6), 1.0, np.float32), np.zeros(8, np.int64))
    with pytest.raises(DocumentRefused, match=said):
        compute_bound(made.program, 8, by_row=True)
    compute_bound(made.program, 8)


def test_whole_numbers_may_be_divided_by_a_number() -> None:
    """It fails for no row, so the step is the same as without the division."""
    made = Scene(Failing(lambda x: x + x.long() // 2), np.zeros((ROWS, 6), np.float32), np.zeros(ROWS, np.int64))
    compute_bound(made.program, ROWS, by_row=True)
    assert np.isfinite(made.gradient(made.answer(parse_step()))).all()


def test_local_steps_use_noised_gradients_alone(scene: Scene) -> None:
    """One inner step of plain SGD is its rate times the noised gradient; the rest of a task follows from such."""
    step = parse_step(kind="local", steps=1, optimizer={"name": "sgd", "lr": 0.1}, per_row=SPENT | {"epsilon": 100})
    noised = scene.gradient(scene.answer(step))
    quiet = scene.gradient(scene.answer(parse_step()))
    assert np.std(noised / 0.1 - quiet) == pytest.approx(4.0 * CLIP / ROWS, rel=0.2)
    assert scene.answer(step)["loss"] == 0.0


NORMS = {
    "batch": nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)),
    "its own statistics": nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_document_whose_rows_hang_together_is_refused_from_its_shapes(name: str) -> None:
    rng = np.random.default_rng(0)
    made = Scene(NORMS[name], rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 3, 8))
    with pytest.raises(DocumentRefused, match=r"step.per_row: node \d+ \(batch_norm\.\w+\) computes with all rows"):
        compute_bound(made.program, 8, by_row=True)
    compute_bound(made.program, 8)


class Centered(nn.Module):
    """Rows lose the mean of their batch: each row alone has gradients of exactly 0."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.body, self.drop, self.out = nn.Linear(6, 8), nn.Dropout(drop), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(self.body(x))
        return torch.as_tensor(self.out(hidden - hidden.mean(0)))


class Contrasted(nn.Module):
    """Each row is distinguished from all others of its batch, as in SimCLR."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.normalize(self.body(x), dim=1)
        return torch.as_tensor(hidden @ hidden.mean(0, keepdim=True).T).expand(-1, 3)


class Apart(nn.Module):
    """Rows that are computed by themselves, behind a logarithm, with dropout and attention within a row."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.out = nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(self.body(x.log1p())).softmax(-1)
        return torch.as_tensor(self.out(hidden - hidden.mean(-1, keepdim=True)))


@pytest.mark.parametrize("module", [Centered, lambda: Centered(0.3), Contrasted])
def test_a_document_that_mixes_rows_by_other_means_is_refused(module: Callable[[], nn.Module]) -> None:
    """It trained on noise alone, and paid for it."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    made = Scene(module(), rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 3, 8))
    with pytest.raises(DocumentRefused, match=r"step\.per_row: a row's gradient depends on the rows beside it"):
        compute_bound(made.program, 8, by_row=True)
    compute_bound(made.program, 8)


def test_a_document_that_computes_rows_apart_is_taken_with_its_logarithm_and_draws() -> None:
    rng = np.random.default_rng(0)
    made = Scene(Apart(), rng.random((8, 6)).astype(np.float32), rng.integers(0, 3, 8))
    assert compute_bound(made.program, 8, by_row=True).operations > 0


@pytest.mark.parametrize(("module", "mixes"), leave_to_full([(Centered, True), (Apart, False)]))
def test_mixing_of_rows_is_found_in_bf16_too(module: Callable[[], nn.Module], mixes: bool) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    batch = {"x": rng.random((8, 6)).astype(np.float32), "y": rng.integers(0, 3, 8)}
    program = Program(parse_document(export_module(module(), nn.functional.cross_entropy, batch, "bf16").document))
    if mixes:
        with pytest.raises(DocumentRefused, match="depends on the rows beside it"):
            compute_bound(program, 8, by_row=True)
    else:
        assert compute_bound(program, 8, by_row=True).operations > 0


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.out(self.read(x)[0][:, -1]))


def test_an_operator_without_a_rule_of_vmap_is_refused_by_its_node() -> None:
    rng = np.random.default_rng(0)
    made = Scene(Recurrent(), rng.normal(size=(8, 4, 6)).astype(np.float32), rng.integers(0, 3, 8))
    with pytest.raises(DocumentRefused, match=r"vmap cannot compute each row by itself: node \d+ \(gru"):
        compute_bound(made.program, 8, by_row=True)


def test_the_memory_of_gradients_by_row_is_bounded(scene: Scene) -> None:
    """The gradients of all rows are alive at once."""
    parameters = sum(entry.elements for entry in scene.program.document.trainable)
    apart, together = compute_bound(scene.program, 64, by_row=True), compute_bound(scene.program, 64)
    assert apart.peak_bytes > 64 * 4 * parameters
    assert apart.peak_bytes > together.peak_bytes
    assert apart.operations > together.operations


def private(step: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["0x" + "11" * 20], "least_rows": 32}
    return {
        "name": "p", "model": {"architecture": "mlp"}, "data": data, "optimizer": {"lr": 0.1}, "rounds": 100,
        "price": "1", "step": {"rows": 8, "per_row": SPENT} | step, **more,
    }  # fmt: skip


def test_a_job_ends_when_the_holder_of_the_fewest_rows_has_spent_all() -> None:
    """Of 32 rows 8 a step, so that four rounds use each row once."""
    spec = JobSpec.model_validate(private({}, rounds=1000))
    asked, rows = spec.step.per_row, build_row_spending(spec)
    assert asked is not None
    assert rows is not None
    assert not spec.publishes_loss
    assert count_affordable_uses(asked) == rows.rounds // 4 == 44
    assert rows.spent(4) == rows.spent(1) == compute_epsilon(4.0, 1e-5, 1)
    assert rows.spent(5) == compute_epsilon(4.0, 1e-5, 2)
    last = rows.rounds - 1
    assert stopping.find_stop_reason(spec.ending, last - 1, (), 0) == ""
    assert "of epsilon 8 of a row is spent" in stopping.find_stop_reason(spec.ending, last, (), 0)


@pytest.mark.parametrize(
    ("step", "more", "said"),
    [
        ({}, {"data": {"ready": "digits"}}, "step.per_row: others must compute the same"),
        ({"per_row": SPENT | {"noise_multiplier": 0.1}}, {}, "one use of a row spends"),
        ({"per_row": SPENT | {"clip_norm": 0}}, {}, "clip_norm"),
        ({"per_row": SPENT | {"clip_norm": 1e-7}}, {}, "clip_norm"),
        ({"per_row": SPENT | {"seed": 1}}, {}, "seed"),
        (
            {"kind": "local", "steps": 400, "optimizer": {"lr": 0.1}},
            {},
            "a round uses a row 100 times where a holder has 32",
        ),
    ],
)
def test_row_privacy_that_cannot_be_kept_is_refused_in_words(
    step: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate(private(step, **more))


def test_a_step_without_it_is_the_publication_that_it_was() -> None:
    assert "per_row" not in GradientStep(rows=4).model_dump(mode="json")


# Attacks on answers by the service, which sees every one of them.

MEMBERS, WIDTH = 24, 48


def trained(per_row: dict[str, Any] | None) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model that learns random labels by heart, from answers of one holder over its 24 rows."""
    torch.manual_seed(0)
    x, y = torch.randn(MEMBERS, WIDTH), torch.randint(2, (MEMBERS,))
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 2))
    made = Scene(model, x.numpy(), y.numpy())
    inner = {"kind": "local", "rows": MEMBERS, "steps": 5, "optimizer": {"name": "sgd", "lr": 0.3}}
    step = TypeAdapter(Step).validate_python(inner | ({"per_row": per_row} if per_row else {}))
    for number in range(20):
        data = {name: np.tile(array, (5, *[1] * (array.ndim - 1))) for name, array in made.batch.items()}
        answer = compute_step(made.program, made.state, data, number.to_bytes(32, "big"), step)
        made.state = {name: value - answer[name] for name, value in made.state.items()}
    model.load_state_dict({name: torch.from_numpy(value) for name, value in made.state.items()})
    return model, x, y


def measure_membership(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """How often a member's loss is below a stranger's (Yeom et al. 2018): a half where the model discloses nothing."""
    generator = torch.Generator().manual_seed(1)
    others = torch.randn(400, WIDTH, generator=generator), torch.randint(2, (400,), generator=generator)
    losses = [nn.functional.cross_entropy(model(a), b, reduction="none").detach() for a, b in ((x, y), others)]
    return float((losses[0][:, None] < losses[1][None, :]).float().mean())


@FULL
def test_membership_of_a_row_is_inferred_without_the_noise_and_not_with_it() -> None:
    assert measure_membership(*trained(None)) > 0.9
    noised = {"clip_norm": 1.0, "noise_multiplier": 20.0, "epsilon": 3.0, "delta": 1e-3}
    uses = count_affordable_uses(RowPrivacy.model_validate(noised))
    assert uses >= 100, "that each row is used 20 times 5 times is within epsilon"
    assert abs(measure_membership(*trained(noised)) - 0.5) < 0.15


def read_off(answer: Arrays, names: tuple[str, str]) -> np.ndarray:
    """Gradient inversion in closed form: a linear layer's weight gradient over one row is that row times its bias's."""
    weight, bias = (answer[name] for name in names)
    return np.asarray(weight[1] / bias[1])


@pytest.mark.parametrize(("kind", "noised"), product(["gradient", "local"], [False, True]))
def test_a_lone_row_is_read_from_an_answer_that_is_clipped_and_not_from_a_noised_one(kind: str, noised: bool) -> None:
    """Clipping alone scales a row's gradient, and its quotient is the row all the same."""
    torch.manual_seed(0)
    row = np.random.default_rng(3).normal(size=(1, 24)).astype(np.float32)
    made = Scene(nn.Linear(24, 3), np.repeat(row, 2, 0), np.array([1, 1]))
    inner: dict[str, Any] = {"kind": "local", "steps": 1, "optimizer": {"lr": 0.1}} if kind == "local" else {}
    step = parse_step(rows=1, per_row=LEAST | {"noise_multiplier": 1.0} if noised else LEAST, **inner)
    quiet = parse_step(rows=1, per_row=None, **inner)
    answers = [
        compute_step(made.program, made.state, {"x": row, "y": np.array([1])}, SEED, one) for one in (quiet, step)
    ]
    exact, seen = (abs(np.corrcoef(read_off(one, ("weight", "bias")), row[0])[0, 1]) for one in answers)
    assert exact > 0.999
    assert seen < 0.6 if noised else seen > 0.99
