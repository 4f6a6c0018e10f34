"""Jobs whose answers nobody can compute again: a task passes by itself, and all of an operator's scores convict it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from books import check_books
from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_floor import PRICE, Floor
from market_scorer import Scorer
from market_workers import HONEST, NOISE, SIGN_FLIP, Behaviour, SimWorker
from pydantic import ValidationError

from gradmarket.market.data.manifest import Column, Manifest, Partition
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.loss_change import BLIND, CONVICTS, LARGEST, RUNS, Verdict
from gradmarket.market.terms import AuditState, Digest, JobState, RoundState, TaskState
from gradmarket.market.wire_audits import AuditAnswer, ChangeTold
from gradmarket.requester import dataset
from gradmarket.requester.api.audits import audits as audits_told
from gradmarket.requester.api.views.trust import ScoreView
from gradmarket.requester.modelling import Modelling
from gradmarket.requester.stages import audit, auditors
from gradmarket.requester.store.tables import Reputation, Score

NewFloor = Callable[..., Floor]


def scored(probability: float = 1.0, on_failure: str = "replay", **more: Any) -> dict[str, Any]:
    return {
        "verifier": {"name": "loss_change"},
        "replication": {"name": "audited", "audit": probability},
        "audit": {"probability": probability, "on_failure": on_failure},
    } | more


def hired(floor: Floor, *behaviours: Behaviour) -> list[SimWorker]:
    workers = [floor.worker(behaviour) for behaviour in behaviours]
    for worker in workers:
        worker.capacity = 10
    return workers


def scores_of(floor: Floor, worker: SimWorker) -> list[ScoreView]:
    """As the list of audits tells them, in the order that they were judged in."""
    found = [view.score for view in audits_told(floor.context, floor.job, limit=1000).items]
    theirs = [score for score in found if score is not None and score.operator == worker.address]
    return sorted(theirs, key=lambda score: score.number)


@SQLITE
def test_the_noisy_honest_are_cleared_audited_as_the_job_says_and_never_convicted(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=4, tasks_per_round=20, **scored(0.5))
    workers = hired(floor, HONEST, HONEST)
    Scorer(floor, passing=0.9, seed=5).play()
    assert floor.state() == JobState.FINISHED
    assert sum(floor.earned().values()) == 80 * PRICE
    assert all(task.state == TaskState.FINAL for task in floor.tasks())
    drawn = audits_of(floor)
    assert {found.state for found in drawn} == {AuditState.PASSED}
    assert RUNS < len(drawn) < 80
    assert {(found.reason, found.rate) for found in drawn} == {(audit.UNCLEARED, 1.0), (audit.DRAWN, 0.5)}
    assert not floor.events("scores_convicted")
    assert {event["operator"] for event in floor.events("scores_honest")} == {worker.address for worker in workers}
    assert floor.all(Reputation) == [], "a score is no proof of honesty"
    assert floor.the_job().proven_class is None
    check_books(floor)


@SQLITE
def test_who_does_not_compute_from_its_rows_is_convicted_and_its_rounds_done_again(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, tasks_per_round=40, **scored())
    liar, *honest = hired(floor, NOISE, HONEST)
    floor.until(lambda: len([row for row in floor.rounds() if row.state == RoundState.CLOSED]) == 2)
    auditor = Scorer(floor, passing=1.0, seed=1)
    auditor.work()
    scores = scores_of(floor, liar)
    at = next(place for place, score in enumerate(scores) if score.verdict == Verdict.CONVICTED)
    (first, *_) = floor.events("audit_failed")
    assert first["workers"] == [liar.address]
    assert first["lost"] == PRICE
    assert scores[at].total >= scores[at].convicts == CONVICTS
    auditor.play(passes=100)
    assert floor.state() == JobState.FINISHED
    assert [event["round"] for event in floor.events("rewound")]
    assert floor.earned()[liar.address] > at * PRICE, "until then its tasks passed, and what was promised is kept"
    revoked = [task for task in floor.tasks() if task.state == TaskState.REVOKED]
    assert {task.reason for task in revoked} == {"the scores of its operator convict it"}
    assert [row.operator for row in floor.all(Reputation)] == [liar.address]
    assert not any(score.verdict == Verdict.CONVICTED for worker in honest for score in scores_of(floor, worker))
    again = {task.id for task in floor.tasks() if task.attempt > 0}
    assert {replica.worker for replica in floor.replicas() if replica.task_id in again} == {honest[0].address}
    check_books(floor)


def test_what_convicts_can_be_added_up_by_anybody_and_a_job_may_pause(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, tasks_per_round=RUNS + 12, **scored(on_failure="pause"))
    (liar,) = hired(floor, SIGN_FLIP)
    floor.until(lambda: floor.rounds()[0].state == RoundState.CLOSED)
    Scorer(floor, passing=1.0).work()
    assert floor.state() == JobState.PAUSED
    assert "an audit found a wrong gradient in round 0" in floor.the_job().reason
    total, scores = 0.0, scores_of(floor, liar)
    for score in scores:
        assert score.accepted.passes == (score.accepted.own > max(score.accepted.others)) == (score.accepted.score > 0)
        if score.honest is not None:
            passes, share = score.accepted.passes, score.honest
            total += math.log(BLIND / share) if passes else math.log((1 - BLIND) / (1 - share))
        assert score.total == pytest.approx(total)
    assert {score.honest for score in scores[: RUNS - 1]} == {None}, "nobody knows how often the honest pass"
    assert None not in {score.honest for score in scores[RUNS - 1 :]}
    assert max(score.total for score in scores) >= CONVICTS


@SQLITE
def test_a_machine_of_any_class_audits_and_any_may_work(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, tasks_per_round=4, **scored())
    workers = [floor.worker(determinism_class=name) for name in ("a", "b", "c")]
    floor.until(lambda: len(floor.rounds()) == 2)
    assert {replica.worker for replica in floor.replicas()} == {worker.address for worker in workers}
    assert len({task.determinism_class for task in floor.tasks()}) > 1
    auditor = Scorer(floor, determinism_class="none of them")
    auditor.play()
    assert floor.state() == JobState.FINISHED
    assert len(audits_of(floor)) == 8


@SQLITE
def test_made_up_classes_leave_no_other_class_out(new_floor: NewFloor) -> None:
    """A class is but a name there: however many names strangers sign in with, the honest ones' count as before."""
    floor = new_floor(tasks_per_round=2, **scored())
    for number in range(130):
        floor.worker(determinism_class=f"a{number % 65}", reserved=0).ask()
    honest = [floor.worker(determinism_class=name) for name in ("x", "y")]
    floor.until(lambda: all(floor.earned().get(worker.address) for worker in honest), *honest)


@SQLITE
def test_an_auditor_that_is_missing_is_asked_for_by_no_class(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=5, **scored())
    floor.worker()
    floor.play(passes=30)
    assert "an auditor of any class" in floor.why_waiting()


@SQLITE
def test_a_score_belongs_to_an_audit_that_asks_for_one(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, **scored())
    floor.worker()
    floor.until(lambda: audits_of(floor))
    auditor = Scorer(floor)
    claimed = auditor.claim()
    assert claimed is not None
    with pytest.raises(Refused, match="a score is wanted"):
        auditors.answer(floor.context, claimed.task, auditor.said(claimed).model_copy(update={"score": None}))
    assert floor.all(Score) == []
    said = auditor.said(claimed)
    assert not auditors.answer(floor.context, claimed.task, said)
    assert not auditors.answer(floor.context, claimed.task, said), "the same again changes nothing"
    (row,) = floor.all(Score)
    assert (row.own, row.operator) == (said.score.accepted.own, floor.workers[0].address)


@SQLITE
def test_an_audit_that_compares_roots_takes_no_score(new_floor: NewFloor) -> None:
    floor = new_floor(audit={"probability": 1.0})
    for _ in range(3):
        floor.worker()
    floor.until(lambda: audits_of(floor))
    plain = SimAuditor(floor)
    claimed = plain.claim()
    assert claimed is not None
    assert claimed.score is None
    change = ChangeTold(own=1.0, others=(0.0, 0.0, 0.0))
    answer = {"auditor": plain.name, "run": 0, "root": plain.find(claimed)}
    answer["score"] = {"accepted": change, "trusted": change}
    with pytest.raises(Refused, match="no score was asked for"):
        auditors.answer(floor.context, claimed.task, AuditAnswer.model_validate(answer))


@pytest.mark.parametrize("others", [(), (0.0,), (0.0,) * 4, (0.0, 0.0, math.nan), (0.0, 0.0, 10 * LARGEST)])
def test_a_score_has_three_finite_others(others: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        ChangeTold(own=0.0, others=others)


STAKE = {"bond": "10", "validators": ["0x" + "1" * 40]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}, "set replication to"),
        ({"replication": {"name": "adaptive"}}, "set replication to"),
        ({"stake": STAKE}, "leave out stake"),
    ],
)
def test_what_it_cannot_judge_by_is_refused(changes: dict[str, Any], said: str) -> None:
    digest = "blake3:" + "3" * 64
    spec = {
        "name": "test",
        "model": {"document": digest, "parameters": digest},
        "data": {"manifest": digest},
        "step": {"rows": 8},
        "optimizer": {"name": "sgd", "lr": 0.125},
        "rounds": 1,
        "price": "1",
    } | scored()
    assert JobSpec.model_validate(spec).verifier.scored
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate(spec | changes)


def test_a_partition_has_rows_to_hold_a_task_s_against(new_floor: NewFloor) -> None:
    floor = new_floor()
    digest = Digest("blake3:" + "4" * 64)
    manifest = Manifest(
        inputs={"x": Column(dtype="float32")},
        partitions=(Partition(name="p", link="https://data.example/p", digest=digest, bytes=100, rows=31),),
    )
    spec = JobSpec.model_validate(floor._spec(step={"rows": 8}, **scored()))
    with pytest.raises(JobRefused, match=r"holds a task's rows against 3 times as many others"):
        dataset.check(floor.context.blobs, Modelling(), spec, manifest)
    enough = manifest.model_copy(update={"partitions": (manifest.partitions[0].model_copy(update={"rows": 32}),)})
    dataset.check(floor.context.blobs, Modelling(), spec, enough)
