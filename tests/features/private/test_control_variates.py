"""SCAFFOLD beside the paper's own algorithm: the same parameters, though nobody sends or keeps the server's variate."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.job import JobSpec
from gradmarket.market.step import LocalStep
from gradmarket.runner.drawn_rows import prefix_corrections
from gradmarket.runner.steps import compute_step
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.export import export_module
from tests.lanes import FULL
from worker.features.private.control_rounds import ControlRound, RoundsInMemory
from worker.features.private.holder_files import RoundFiles

HOLDERS, STEPS, ROWS, LR, OUTER = 3, 4, 6, 0.2, 0.5
LOCAL = {"kind": "local", "rows": ROWS, "steps": STEPS, "optimizer": {"name": "sgd", "lr": LR}}
STEP: LocalStep = TypeAdapter(LocalStep).validate_python(LOCAL | {"control_variates": True})
Arrays = dict[str, np.ndarray]


class Scene:
    """Three holders of unlike rows: the labels of each are nearly all one."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        self.x = [rng.normal(size=(STEPS * ROWS, 5)).astype(np.float32) + n for n in range(HOLDERS)]
        self.y = [np.where(rng.random(STEPS * ROWS) < 0.9, n, 0) for n in range(HOLDERS)]
        self.module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, HOLDERS))
        arrays = {"x": np.concatenate(self.x), "y": np.concatenate(self.y)}
        made = export_module(self.module, nn.functional.cross_entropy, arrays)
        self.program, self.first = Program(parse_document(made.document)), dict(made.parameters)
        self.names = tuple(entry.name for entry in build_layout(self.program.document).of("gradient"))

    def ours(self, rounds: int) -> list[Arrays]:
        """Returns the parameters after each round."""
        stores, state, found = [RoundsInMemory() for _ in range(HOLDERS)], self.first, []
        for number in range(rounds):
            changes = []
            for holder in range(HOLDERS):
                control = ControlRound(stores[holder], "job", number, STEP, OUTER)
                correction = control.correction(state, self.names)
                batch = {"x": self.x[holder], "y": self.y[holder]}
                answer = compute_step(self.program, {**state, **prefix_corrections(correction)}, batch, bytes(32), STEP)
                changes.append({name: answer[name] for name in self.names})
                control.answered(state, correction, changes[-1])
            mean = {name: np.mean([one[name] for one in changes], 0, dtype=np.float32) for name in self.names}
            state = {name: state[name] - np.float32(OUTER) * mean[name] for name in self.names}
            found.append(state)
        return found

    def gradient(self, parameters: Arrays, holder: int, step: int) -> Arrays:
        rows = slice(step * ROWS, (step + 1) * ROWS)
        tensors = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
        out = torch.func.functional_call(self.module, tensors, torch.from_numpy(self.x[holder][rows]))
        loss = nn.functional.cross_entropy(out, torch.from_numpy(self.y[holder][rows]))
        return dict(zip(tensors, (g.numpy() for g in torch.autograd.grad(loss, list(tensors.values()))), strict=True))

    def papers(self, rounds: int) -> list[Arrays]:
        """Algorithm 1 of Karimireddy et al. 2020, option II, all holders in each round, in float64."""
        zeros = {name: np.zeros(self.first[name].shape) for name in self.names}
        x, c, own = {name: self.first[name].astype(float) for name in self.names}, zeros, [zeros] * HOLDERS
        found = []
        for _ in range(rounds):
            changes, deltas = [], []
            for holder in range(HOLDERS):
                y = x
                for step in range(STEPS):
                    g = self.gradient({name: value.astype(np.float32) for name, value in y.items()}, holder, step)
                    y = {name: y[name] - LR * (g[name] - own[holder][name] + c[name]) for name in self.names}
                after = {name: own[holder][name] - c[name] + (x[name] - y[name]) / (STEPS * LR) for name in self.names}
                changes.append({name: y[name] - x[name] for name in self.names})
                deltas.append({name: after[name] - own[holder][name] for name in self.names})
                own = [*own[:holder], after, *own[holder + 1 :]]
            x = {name: x[name] + OUTER * np.mean([one[name] for one in changes], 0) for name in self.names}
            c = {name: c[name] + np.mean([one[name] for one in deltas], 0) for name in self.names}
            found.append(x)
        return found


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_the_parameters_are_those_of_the_papers_algorithm(scene: Scene) -> None:
    for own, theirs in zip(scene.ours(8), scene.papers(8), strict=True):
        for name in scene.names:
            np.testing.assert_allclose(own[name], theirs[name], atol=2e-6)


@FULL
def test_without_it_holders_of_unlike_rows_end_where_the_loss_of_all_is_not_least(scene: Scene) -> None:
    """A step of all rows still changes the end: corrections that were always zeros would fail the other tests."""
    plain = LocalStep.model_validate(LOCAL)
    state = scene.first
    for _ in range(60):
        batches = [{"x": x, "y": y} for x, y in zip(scene.x, scene.y, strict=True)]
        told = [compute_step(scene.program, state, batch, bytes(32), plain) for batch in batches]
        means = {name: np.mean([one[name] for one in told], 0) for name in scene.names}
        state = {name: state[name] - np.float32(OUTER) * means[name] for name in scene.names}

    def left(parameters: Arrays) -> float:
        found = [scene.gradient(parameters, holder, step) for holder in range(HOLDERS) for step in range(STEPS)]
        return float(np.sqrt(sum((np.mean([one[name] for one in found], 0) ** 2).sum() for name in scene.names)))

    assert left(scene.ours(60)[-1]) < 0.5 * left(state)


def test_all_corrections_add_up_to_zeros_whatever_is_sent(scene: Scene) -> None:
    """Answers changed by a codec or a bound, and another at the next round: the sent answers count."""
    rng = np.random.default_rng(1)
    stores, state = [RoundsInMemory() for _ in range(HOLDERS)], scene.first
    for number in range(6):
        rounds = [ControlRound(store, "job", number, STEP, OUTER) for store in stores]
        corrections = [one.correction(state, scene.names) for one in rounds]
        for name in scene.names:
            np.testing.assert_allclose(np.sum([one[name] for one in corrections], 0), 0, atol=1e-4)
        sent = [{name: rng.normal(size=state[name].shape).astype("f4") for name in scene.names} for _ in rounds]
        for one, correction, change in zip(rounds, corrections, sent, strict=True):
            one.answered(state, correction, change)
        state = {name: state[name] - np.float32(OUTER) * np.mean([c[name] for c in sent], 0) for name in scene.names}


def test_a_round_that_is_computed_again_is_corrected_alike(scene: Scene) -> None:
    """A worker that died before its answer was sealed computes it again, after it stored this round's state."""
    store = RoundsInMemory()
    batch = {"x": scene.x[0], "y": scene.y[0]}
    answers = []
    for number in (0, 1, 1):
        control = ControlRound(store, "job", number, STEP, OUTER)
        state = {name: value - np.float32(0.01 * number) for name, value in scene.first.items()}
        correction = control.correction(state, scene.names)
        answers.append(compute_step(scene.program, {**state, **prefix_corrections(correction)}, batch, bytes(32), STEP))
        control.answered(state, correction, {name: answers[-1][name] for name in scene.names})
    assert all((answers[1][name] == answers[2][name]).all() for name in scene.names)
    assert any((answers[0][name] != answers[1][name]).any() for name in scene.names)


@pytest.mark.parametrize("data", [None, b"", b"no safetensors", b"\x08" + bytes(7) + b"{}      "])
def test_a_holder_that_lost_what_it_kept_takes_no_part(scene: Scene, data: bytes | None) -> None:
    """With zeros instead, all later rounds would be off by the missing state."""
    store = RoundsInMemory()
    if data is not None:
        store.store_round("job", 0, data)
    with pytest.raises(Refused, match="control variates of round 0 of job job are not here"):
        ControlRound(store, "job", 1, STEP, OUTER).correction(scene.first, scene.names)


def test_a_workers_files_are_of_the_two_newest_rounds_of_each_job(tmp_path: Path) -> None:
    files = RoundFiles(tmp_path)
    for number in range(4):
        files.store_round("one", number, bytes([number]))
    files.store_round("../other", 7, b"other")
    assert [files.load("one", number) for number in range(4)] == [None, None, b"\2", b"\3"]
    assert RoundFiles(tmp_path).load("../other", 7) == b"other"
    assert len(list(tmp_path.iterdir())) == 3


HELD = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["0x" + d * 40 for d in "12"], "least_rows": 8}
JOB: dict[str, Any] = {
    "name": "p", "model": {"architecture": "mlp"}, "data": HELD, "optimizer": {"lr": 1.0}, "rounds": 3, "price": "1",
    "tasks_per_round": 2, "step": LOCAL | {"control_variates": True},
}  # fmt: skip


def test_a_job_of_all_holders_may_have_it() -> None:
    step = JobSpec.model_validate(JOB).step
    assert isinstance(step, LocalStep)
    assert step.control_variates
    assert "control_variates" not in LocalStep.model_validate(LOCAL).model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"ready": "digits"}, "replication": {"replicas": 1, "max_replicas": 1}}, "name holders in data"),
        ({"tasks_per_round": 1}, "of all holders in every round: 2"),
        ({"min_tasks": 1}, "of all holders in every round"),
        ({"optimizer": {"name": "adamw", "lr": 0.1}}, "take sgd"),
        ({"optimizer": {"lr": 0.1, "momentum": 0.9}}, "take sgd"),
        ({"aggregator": {"name": "median"}}, "are of the mean"),
        ({"overlap": 1}, "leave out overlap"),
        ({"privacy": {"noise_multiplier": 4, "epsilon": 8, "delta": 1e-5}}, "noise of a merge would stay"),
        ({"downlink": {"codec": "two_bit"}}, "leave out downlink"),
        ({"step": JOB["step"] | {"optimizer": {"name": "adamw", "lr": 0.1}}}, "the optimizer sgd and its lr alone"),
        ({"step": JOB["step"] | {"optimizer": {"lr": 0.1, "clip": 1.0}}}, "the optimizer sgd and its lr alone"),
        ({"step": JOB["step"] | {"proximal": 0.1}}, "without rewarm, proximal"),
    ],
)
def test_where_it_would_be_no_control_variate_it_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate(JOB | changes)
