"""The demo's verdict: true figures pass, and each false one is seen by the check that is there for it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradmarket.demo.cheat import draw_noise, sign_flip
from gradmarket.demo.demo_outcome import DemoOutcome, Escrow, Pay, check_outcome
from gradmarket.demo.workers import JOB, PRICE
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import Stats
from tests.shown import DIGEST, shown_job

NOTHING = shown_job().costs.model_copy(update={"refunded": "0", "earned": "0"})
STATS = Stats(
    rounds=1,
    tasks=4,
    accepted=4,
    rejected=0,
    replicas={},
    uploads=4,
    payload_bytes=0,
    compute_seconds=0.0,
    first_accepted_seconds=None,
    settlements=[],
)


def pay(behaviour: str, accepted: int, **changed: Any) -> Pay:
    earned = accepted * PRICE
    facts = {"accepted": accepted, "rejected": 0, "why": {}, "earned": earned, "balance": earned, "kept": 0} | changed
    return Pay(address="0x1", payout="0x2", behaviour=behaviour, **facts)


def outcome(*workers: Pay, **escrow: int) -> DemoOutcome:
    sums = {"deposited": 10 * PRICE, "paid": 4 * PRICE, "refunded": 6 * PRICE, "left": 0} | escrow
    cast = list(workers) or [pay("honest", 3), pay("honest", 1), pay("noise", 0), pay("sign_flip", 0)]
    return DemoOutcome(shown_job(), STATS, cast, Escrow(**sums), served=DIGEST, last_round=DIGEST)


def failing(found: DemoOutcome) -> list[str]:
    return [name for name, held in check_outcome(found).items() if not held]


def test_true_figures_pass() -> None:
    assert failing(outcome()) == []


FALSE = {
    "every cheat": [
        outcome(pay("honest", 4), pay("noise", 0, balance=1)),
        outcome(pay("honest", 4), pay("noise", 0, kept=1)),
        outcome(pay("honest", 4), pay("sign_flip", 0, earned=PRICE)),
    ],
    "each honest": [
        outcome(pay("honest", 4, balance=4 * PRICE - 1), pay("noise", 0)),
        outcome(pay("honest", 4, kept=1), pay("noise", 0)),
        outcome(pay("honest", 5, earned=4 * PRICE, balance=4 * PRICE), pay("noise", 0)),
    ],
    "honest workers hold": [outcome(paid=4 * PRICE + 1, refunded=6 * PRICE - 1)],
    "deposited": [outcome(refunded=6 * PRICE - 1), outcome(left=1), outcome(deposited=10 * PRICE + 1)],
    "the service's books": [replace(outcome(), job=shown_job(costs=NOTHING))],
    "the served": [replace(outcome(), served="blake3:" + "cd" * 32), replace(outcome(), last_round="")],
    "accuracy": [replace(outcome(), job=shown_job(metrics={"accuracy": 0.9499}))],
    "the job": [replace(outcome(), job=shown_job(state=JobState.CANCELLED))],
}


@pytest.mark.parametrize(("name", "found"), [(name, found) for name, cases in FALSE.items() for found in cases])
def test_a_false_figure_is_seen(name: str, found: DemoOutcome) -> None:
    assert any(failed.startswith(name) for failed in failing(found))


def test_an_accuracy_that_was_never_measured_is_none() -> None:
    assert failing(replace(outcome(), job=shown_job(metrics=None))) != []


def test_the_demos_job_is_one_that_can_be_posted() -> None:
    spec = JobSpec.model_validate(JOB)
    assert (spec.replication.replicas, spec.replication.max_replicas, spec.separation) == (3, 5, ("payout",))


def test_cheats_answer_in_the_honest_form_and_otherwise() -> None:
    honest = {"loss": np.float32(1.5), "a": np.arange(-3, 3, dtype=np.float32), "b": np.ones((2, 2), np.float32)}
    flipped, first, second = sign_flip(honest), draw_noise(honest), draw_noise(honest)
    for answer in (flipped, first, second):
        assert {name: (array.shape, array.dtype) for name, array in answer.items()} == {
            name: (array.shape, array.dtype) for name, array in honest.items()
        }
        assert answer["loss"] == honest["loss"]
    assert np.array_equal(flipped["a"], -honest["a"])
    assert not np.array_equal(first["a"], honest["a"])
    assert not np.array_equal(first["a"], second["a"])
