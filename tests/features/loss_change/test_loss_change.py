"""Jobs whose answers nobody can compute again: a task passes by itself, and all of an operator's scores convict it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.features.loss_change import BLIND, CONVICTS, RISK, RUNS
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Column, Manifest, Partition
from gradmarket.market.terms import AuditState, ChangeVerdict, Digest, JobState, RoundState, TaskState
from gradmarket.market.views.trust_views import ScoreView
from gradmarket.market.wire.audit_messages import LARGEST_FALL, AuditAnswer, LossFall
from requester import dataset
from requester.features.audits import audit_draws, auditor_claims
from requester.features.audits.audit_routes import audits as audits_told
from requester.features.loss_change import UNCLEARED
from requester.features.loss_change.scores import Score
from requester.store.tables import Account, Reputation
from tests.features.loss_change.market_scorer import Scorer
from tests.kit.behaviour import HONEST, NOISE, SIGN_FLIP, Behaviour
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]


def scored(probability: float = 1.0, on_failure: str = "replay", **more: Any) -> dict[str, Any]:
    return {
        "verifier": {"name": "loss_change"},
        "replication": {"name": "audited", "audit": probability},
        "audit": {"probability": probability, "on_failure": on_failure},
    } | more


def hired(market: MarketFixture, *behaviours: Behaviour) -> list[SimWorker]:
    workers = [market.worker(behaviour) for behaviour in behaviours]
    for worker in workers:
        worker.capacity = 10
    return workers


def scores_of(market: MarketFixture, worker: SimWorker) -> list[ScoreView]:
    """Returns the scores of the list of audits, in the order of judgement."""
    found = [view.score for view in audits_told(market.context, market.job, limit=1000).items]
    theirs = [score for score in found if score is not None and score.operator == worker.address]
    return sorted(theirs, key=lambda score: score.number)


@FULL
def test_the_noisy_honest_are_cleared_audited_at_the_job_s_rate_and_never_convicted(new_market: NewMarket) -> None:
    market = new_market(rounds=4, tasks_per_round=20, **scored(0.5))
    workers = hired(market, HONEST, HONEST)
    Scorer(market, passing=0.9, seed=5).play()
    assert market.state() == JobState.FINISHED
    assert sum(market.earned().values()) == 80 * PRICE
    assert all(task.state == TaskState.FINAL for task in market.tasks())
    drawn = audits_of(market)
    assert {found.state for found in drawn} == {AuditState.PASSED}
    assert RUNS < len(drawn) < 80
    assert {(found.reason, found.rate) for found in drawn} == {(UNCLEARED, 1.0), (audit_draws.DRAWN, 0.5)}
    assert not market.events("scores_convicted")
    assert {event["operator"] for event in market.events("scores_honest")} == {worker.address for worker in workers}
    assert market.all(Reputation) == [], "a score is no proof of honesty"
    assert market.the_job().proven_class is None
    check_books(market)


def test_a_worker_that_ignores_its_rows_is_convicted_and_its_rounds_are_done_again(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=26, **scored())
    liar, *honest = hired(market, NOISE, HONEST)
    market.until(lambda: len([row for row in market.rounds() if row.state == RoundState.CLOSED]) == 2)
    auditor = Scorer(market, passing=1.0, seed=1)
    auditor.work()
    scores = scores_of(market, liar)
    at = next(place for place, score in enumerate(scores) if score.verdict == ChangeVerdict.CONVICTED)
    (first, *_) = market.events("audit_failed")
    assert first["workers"] == [liar.address]
    assert first["lost"] == "0", "its pay waited for its test"
    assert scores[at].total >= scores[at].convicts == CONVICTS
    auditor.play(passes=100)
    assert market.state() == JobState.FINISHED
    assert [event["round"] for event in market.events("rewound")]
    assert at > 0, "until then its tasks passed, unpaid"
    assert market.earned().get(liar.address, 0) == 0
    revoked = [task for task in market.tasks() if task.state == TaskState.REVOKED]
    assert {task.reason for task in revoked} == {"the scores of its operator convict it"}
    assert [row.operator for row in market.all(Reputation)] == [liar.address]
    assert not any(score.verdict == ChangeVerdict.CONVICTED for worker in honest for score in scores_of(market, worker))
    again = {task.id for task in market.tasks() if task.attempt > 0}
    assert {replica.worker for replica in market.replicas() if replica.task_id in again} == {honest[0].address}
    check_books(market)


def uncleared_answers(market: MarketFixture, cleared: set[str], number: int) -> int:
    """How many of the round's tasks somebody answered whom no whole test has cleared."""
    theirs = {task.id for task in market.tasks() if task.round == number}
    return sum(replica.task_id in theirs and replica.worker not in cleared for replica in market.replicas())


@FULL
@pytest.mark.parametrize(("honest", "share"), [(1, 2), (3, 4)])
def test_noise_that_changes_wallets_gets_a_part_of_the_places(new_market: NewMarket, honest: int, share: int) -> None:
    """No wallet answers often enough to be convicted, and the first answer of each makes it known."""
    market = new_market(rounds=9, tasks_per_round=16, **scored())
    workers = hired(market, *[HONEST] * honest)
    auditor = Scorer(market, passing=1.0)
    cleared = {worker.address for worker in workers}
    while {event["operator"] for event in market.events("scores_honest")} != cleared:
        auditor.play(passes=1)
    first = market.rounds()[-1].number + 1
    for number in range(first, first + 2):
        (liar,) = hired(market, NOISE)
        while not market.events("finished") and market.rounds()[-1].number <= number:
            liar.turn()
            auditor.play(passes=1)
        assert uncleared_answers(market, cleared, number) <= 16 // share
    assert any(replica.worker not in cleared for replica in market.replicas())


@FULL
def test_noise_that_changes_wallets_every_four_answers_is_paid_no_more(new_market: NewMarket) -> None:
    """No wallet's own test ends. Together they are noise, and cleared workers alone are asked for a while."""
    market = new_market(rounds=14, tasks_per_round=16, **scored())
    market.one_by_one = True
    honest = hired(market, *[HONEST] * 3)
    auditor = Scorer(market, passing=1.0)
    while {event["operator"] for event in market.events("scores_honest")} != {worker.address for worker in honest}:
        auditor.play(passes=1)
    liars: list[SimWorker] = []
    while not market.events("newcomers_closed"):
        if not liars or len(market.replicas(liars[-1])) >= 4:
            liars += hired(market, NOISE)
            market.workers.remove(liars[-1])
        liars[-1].turn()
        auditor.play(passes=1)
    assert not market.events("scores_convicted")
    assert len(liars) > 1
    (closed,) = market.events("newcomers_closed")
    seen, paid = market.rounds()[-1].number, {liar.address: market.earned().get(liar.address, 0) for liar in liars}
    (late,) = hired(market, NOISE)
    market.workers.remove(late)
    while not market.events("finished") and market.rounds()[-1].number < closed["until"]:
        late.turn()
        auditor.play(passes=1)
    assert market.rounds()[-1].number > seen + 1
    between = [row for row in market.replicas(late) if row.committed_at is not None]
    assert len(between) <= math.ceil(RISK * 16 * (closed["until"] - seen)), "one task in 200"
    assert {name: market.earned().get(name, 0) for name in paid} == paid
    accounts = {account.worker: account for account in market.all(Account)}
    assert not [name for name in (*paid, late.address) if name in accounts and accounts[name].promised]
    check_books(market)


@FULL
def test_published_scores_add_up_to_the_conviction_and_a_job_may_pause(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=RUNS + 12, **scored(on_failure="pause"))
    (liar,) = hired(market, SIGN_FLIP)
    market.until(lambda: market.rounds()[0].state == RoundState.CLOSED)
    Scorer(market, passing=1.0).work()
    assert market.state() == JobState.PAUSED
    assert "an audit found a wrong gradient in round 0" in market.the_job().reason
    total, scores = 0.0, scores_of(market, liar)
    for score in scores:
        assert score.accepted.passes == (score.accepted.own > max(score.accepted.others)) == (score.accepted.score > 0)
        if score.honest is not None:
            passes, share = score.accepted.passes, score.honest
            total += math.log(BLIND / share) if passes else math.log((1 - BLIND) / (1 - share))
        assert score.total == pytest.approx(total)
    assert {score.honest for score in scores[: RUNS - 1]} == {None}, "nobody knows how often the honest pass"
    assert None not in {score.honest for score in scores[RUNS - 1 :]}
    assert max(score.total for score in scores) >= CONVICTS


@FULL
def test_a_machine_of_any_class_audits_and_any_may_work(new_market: NewMarket) -> None:
    market = new_market(rounds=2, tasks_per_round=4, **scored())
    workers = [market.worker(determinism_class=name) for name in ("a", "b", "c")]
    market.until(lambda: len(market.rounds()) == 2)
    assert {replica.worker for replica in market.replicas()} == {worker.address for worker in workers}
    assert len({task.determinism_class for task in market.tasks()}) > 1
    auditor = Scorer(market, determinism_class="none of them")
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert len(audits_of(market)) == 8


@FULL
def test_made_up_classes_leave_no_other_class_out(new_market: NewMarket) -> None:
    """A class is but a name there: however many names strangers sign in with, the honest ones' count as before."""
    market = new_market(tasks_per_round=2, **scored())
    for number in range(130):
        market.worker(determinism_class=f"a{number % 65}", reserved=0).request_work()
    honest = [market.worker(determinism_class=name) for name in ("x", "y")]
    market.until(lambda: all(market.earned().get(worker.address) for worker in honest), *honest)


@FULL
def test_an_auditor_that_is_missing_is_asked_for_by_no_class(new_market: NewMarket) -> None:
    market = new_market(rounds=5, **scored())
    market.worker()
    market.play(passes=30)
    assert "an auditor of any class" in market.why_waiting()


def test_a_score_belongs_to_an_audit_that_asks_for_one(new_market: NewMarket) -> None:
    market = new_market(rounds=2, **scored())
    market.worker()
    market.until(lambda: audits_of(market))
    auditor = Scorer(market)
    claimed = auditor.claim()
    assert claimed is not None
    with pytest.raises(Refused, match="send a score"):
        auditor_claims.record_audit_answer(
            market.context, claimed.task, auditor.build_answer(claimed).model_copy(update={"score": None})
        )
    assert market.all(Score) == []
    said = auditor.build_answer(claimed)
    assert not auditor_claims.record_audit_answer(market.context, claimed.task, said)
    assert not auditor_claims.record_audit_answer(market.context, claimed.task, said), "the same again changes nothing"
    (row,) = market.all(Score)
    assert (row.own, row.operator) == (said.score.accepted.own, market.workers[0].address)


def test_an_audit_that_compares_roots_takes_no_score(new_market: NewMarket) -> None:
    market = new_market(audit={"probability": 1.0})
    for _ in range(3):
        market.worker()
    market.until(lambda: audits_of(market))
    plain = SimAuditor(market)
    claimed = plain.claim()
    assert claimed is not None
    assert claimed.score is None
    change = LossFall(own=1.0, others=(0.0, 0.0, 0.0))
    answer = {"auditor": plain.name, "run": 0, "root": plain.find(claimed)}
    answer["score"] = {"accepted": change, "trusted": change}
    with pytest.raises(Refused, match="this audit takes no score"):
        auditor_claims.record_audit_answer(market.context, claimed.task, AuditAnswer.model_validate(answer))


@pytest.mark.parametrize("others", [(), (0.0,), (0.0,) * 4, (0.0, 0.0, math.nan), (0.0, 0.0, 10 * LARGEST_FALL)])
def test_a_score_has_three_finite_others(others: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        LossFall(own=0.0, others=others)


STAKE = {"bond": "10", "validators": ["0x" + "1" * 40]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}, "set replication to"),
        ({"replication": {"name": "adaptive"}}, "set replication to"),
        ({"stake": STAKE}, "stake is lost by proof only: leave it out"),
    ],
)
def test_specs_that_the_verifier_cannot_score_are_refused(changes: dict[str, Any], said: str) -> None:
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


def test_a_partition_has_rows_to_hold_a_task_s_against(new_market: NewMarket) -> None:
    market = new_market()
    digest = Digest("blake3:" + "4" * 64)
    manifest = Manifest(
        inputs={"x": Column(dtype="float32")},
        partitions=(Partition(name="p", link="https://data.example/p", digest=digest, bytes=100, rows=31),),
    )
    spec = JobSpec.model_validate(market._spec(step={"rows": 8}, **scored()))
    with pytest.raises(JobRefused, match=r"holds a task's rows against 3 times as many others"):
        dataset.check_dataset(market.context.blobs, spec, manifest)
    enough = manifest.model_copy(update={"partitions": (manifest.partitions[0].model_copy(update={"rows": 32}),)})
    dataset.check_dataset(market.context.blobs, spec, enough)
