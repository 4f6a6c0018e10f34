"""A small corner of the table that `make bench ONLY=trust.btard` draws: the same functions, few rounds."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.trust.attacks import ATTACKS, Scene
from benchmarks.trust.defences import AUDITED, DEFENCES, VOTES, Crew, voted
from benchmarks.trust.replay import Course, Replayed
from benchmarks.trust.run import Run, Setting
from benchmarks.trust.table import NO_ATTACK, Table, picture
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.ready_data.digits import load_table
from tests.lanes import leave_to_full

SETTING = Setting(start=4, tries=1)
LAYOUT = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("weight", (64, 10), "gradient")))


class Regression:
    """Digits by softmax regression in numpy, in the place of `Trained`: no torch, so that a run takes no second."""

    def __init__(self) -> None:
        self.workload = SimpleNamespace(rounds=20, optimizer="sgd", lr=0.5, settings={"momentum": 0.9})
        self.layout, self.parameters = LAYOUT, {"weight": np.zeros((64, 10), np.float32)}
        rows = load_table()
        self.images, self.labels = rows[:, :-1] / 16, rows[:, -1].astype(np.int64)

    def round(self, state: Any, number: int, tasks: int) -> list[dict[str, np.ndarray]]:
        return [self.answer(state, number, task) for task in range(tasks)]

    def answer(self, state: Any, round_number: int, task: int, flipped: bool = False) -> dict[str, np.ndarray]:
        rows = np.random.default_rng((round_number, task)).integers(400, len(self.labels), 16)
        x, labels = self.images[rows], 9 - self.labels[rows] if flipped else self.labels[rows]
        scores = np.exp(x @ state["weight"])
        shares = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log(shares[np.arange(16), labels]).mean()
        return {
            "loss": np.array(loss, np.float32),
            "weight": (x.T @ (shares - np.eye(10)[labels]) / 16).astype(np.float32),
        }

    def accuracy(self, state: Any) -> float:
        return 100.0 * float(((self.images[:400] @ state["weight"]).argmax(axis=1) == self.labels[:400]).mean())


@pytest.fixture(scope="module")
def trained() -> Regression:
    return Regression()


def test_the_plain_mean_falls_to_one_attack_that_votes_bear(trained: Regression) -> None:
    honest = Run(trained, DEFENCES["mean"], SETTING).accuracy(None)
    assert honest > 75
    assert Run(trained, DEFENCES["mean"], SETTING).accuracy("sign flip x1000") < 30
    assert Run(trained, DEFENCES["votes of 3 to 5"], SETTING).accuracy("sign flip x1000") > honest - 20


@pytest.mark.parametrize("name", ["votes, median", "audits of 10 %"])
def test_a_run_is_a_function_of_its_seed(trained: Regression, name: str) -> None:
    made = Replayed if DEFENCES[name].replays else Run
    runs = [made(trained, DEFENCES[name], SETTING) for _ in range(2)]
    assert runs[0].accuracy("silent quorum") == runs[1].accuracy("silent quorum")


NARROW = replace(SETTING, norm_bound=3.0)
"""No answer within the bound is four times as long as its round's others in the round in which the attack begins."""


def played(trained: Regression, audit: float, attack: str | None, setting: Setting = SETTING) -> tuple[bytes, Course]:
    """Returns the bits of the final model, and the run's course."""
    defence = replace(DEFENCES[AUDITED], plan=replace(VOTES, audit=audit))
    run = Replayed(trained, defence, setting)
    run.accuracy(attack)
    return run.models[-1].tensors["weight"].tobytes(), run.courses[attack or ""][-1]


@pytest.fixture(scope="module")
def honest_bits(trained: Regression) -> bytes:
    bits, course = played(trained, 1.0, None)
    assert (course.rounds, course.failed, course.accepted) == (16, 0, 256)
    assert course.audits == 256
    return bits


@pytest.mark.parametrize("attack", leave_to_full(["silent quorum", "label flip", "IPM"]))
def test_lies_found_by_audits_are_taken_back_to_the_bit(trained: Regression, honest_bits: bytes, attack: str) -> None:
    """As the service does with an auditor as late: the first wrong round and the one after it are done again."""
    bits, course = played(trained, 1.0, attack)
    assert bits == honest_bits
    assert course.failed > 0
    assert course.gone == 2
    assert course.rounds == 16 + 2
    assert 256 + 16 < course.accepted < 256 + 16 + course.failed


def test_lies_that_no_audit_is_drawn_for_stay(trained: Regression, honest_bits: bytes) -> None:
    bits, course = played(trained, 1e-9, "random")
    assert bits != honest_bits
    assert (course.failed, course.audits, course.left) == (0, 0, 7)
    assert course.rounds == 16


def test_lies_longer_than_their_round_are_audited_though_none_is_drawn(trained: Regression, honest_bits: bytes) -> None:
    bits, course = played(trained, 1e-9, "silent quorum")
    assert bits == honest_bits
    assert course.diverged == 0
    assert course.failed > 0


def test_an_answer_over_the_norm_bound_is_never_used_and_audited_at_once(
    trained: Regression, honest_bits: bytes
) -> None:
    bits, course = played(trained, 1e-9, "sign flip x1000")
    assert bits == honest_bits
    assert course.diverged > 0
    assert course.failed >= course.diverged
    assert course.gone == 0
    assert course.left <= 1


class Brittle(Regression):
    """Its gradients are over any bound where a lie was merged: at any model that honest work does not come to."""

    def __init__(self, honest: Run) -> None:
        super().__init__()
        self.honest = {model.tensors["weight"].tobytes() for model in honest.models}

    def answer(self, state: Any, round_number: int, task: int, flipped: bool = False) -> dict[str, np.ndarray]:
        answer = super().answer(state, round_number, task, flipped)
        factor = np.float32(1.0 if state["weight"].tobytes() in self.honest else 1e9)
        return answer | {"weight": answer["weight"] * factor}


@pytest.mark.parametrize("audit", [1e-9, 0.3])
def test_an_honest_divergence_pauses_the_job_unless_an_audit_takes_its_cause_back(
    trained: Regression, honest_bits: bytes, audit: float
) -> None:
    honest = Replayed(trained, DEFENCES[AUDITED], SETTING)
    honest.accuracy(None)
    bits, course = played(Brittle(honest), audit, "silent quorum", NARROW)
    assert course.diverged > 0
    assert course.paused == (audit < 0.1)
    assert (bits == honest_bits) == (audit > 0.1)


def scene(honest: np.ndarray) -> Scene:
    return Scene(honest[0], honest, lambda: honest[1], lambda: honest[2], 100.0, 16, 7, round=3, task=0)


@pytest.mark.parametrize("name", leave_to_full(ATTACKS, 4))
def test_an_attack_is_another_gradient_of_the_same_shape_and_the_same_twice(name: str) -> None:
    honest = np.random.default_rng(0).standard_normal((16, 40)).astype(np.float32)
    first, second = ATTACKS[name](scene(honest)), ATTACKS[name](scene(honest))
    assert (first.shape, first.dtype) == ((40,), np.float32)
    assert np.array_equal(first, second)
    assert not np.allclose(first, honest[0])


def shares(quiet: bool, hostile: int = 7, tasks: int = 3000) -> dict[bool | None, float]:
    """Of the outcomes: honest, false, none."""
    crew = Crew(16, hostile, Random(1))
    outcomes = [voted(crew, VOTES, quiet) for _ in range(tasks)]
    return {outcome: outcomes.count(outcome) / tasks for outcome in (True, False, None)}


@pytest.mark.parametrize("quiet", [True, False])
def test_seven_of_sixteen_hold_the_quorum_of_three_in_two_tasks_of_five(quiet: bool) -> None:
    found = shares(quiet)
    assert found[False] == pytest.approx(0.4, abs=0.03)
    assert found[True] == pytest.approx(0.6, abs=0.03)


def test_without_colluders_every_task_is_honest() -> None:
    assert shares(quiet=False, hostile=0, tasks=100) == {True: 1.0, False: 0.0, None: 0.0}


def test_the_picture_is_well_formed_and_has_every_figure() -> None:
    table = Table("digits", 95.0, {"mean": {NO_ATTACK: 0.0, "IPM": 12.3}, "median <7>": {NO_ATTACK: 1.0, "IPM": 4.5}})
    drawn = picture(table)
    texts = [element.text for element in ElementTree.fromstring(drawn).iter() if element.text]
    assert {"12.3", "4.5", "median <7>", "IPM"} <= set(texts)
