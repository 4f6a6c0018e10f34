"""Diverged answers of an audited job are audited for certain: a lie pauses it briefly, honest work stays a reason."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from requester.features.audits.audit_draws import SUSPECT
from requester.store import strikes
from requester.store.tables import Job, Reputation
from tests.kit.behaviour import Behaviour, filled, scaled
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.test_endings import remedy
from tests.requester.test_verdicts_replayed import found, shown

NewMarket = Callable[..., MarketFixture]
HUGE = scaled(1e9)
RARELY: dict[str, Any] = {"audit": {"probability": 1e-9}}
"""Nothing is drawn."""


def diverged(new_market: NewMarket, **spec: Any) -> MarketFixture:
    """Returns a paused job with two liars beyond the bound, which outvoted an honest worker."""
    market = new_market(**(RARELY | spec))
    market.worker(HUGE), market.worker(HUGE), market.worker()
    market.play()
    assert market.state() == JobState.PAUSED
    assert [(audit.reason, audit.rate, audit.state) for audit in audits_of(market)] == [(SUSPECT, 1.0, AuditState.DUE)]
    return market


@FULL
def test_a_lie_that_diverges_is_found_and_the_job_goes_on_by_itself(new_market: NewMarket) -> None:
    market = diverged(new_market, rounds=2)
    *liars, honest = market.workers
    others = [market.worker(), market.worker()]
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    first, again, _ = market.tasks()
    assert (first.state, again.state, again.attempt) == (TaskState.REVOKED, TaskState.FINAL, 1)
    assert {row.operator for row in market.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    assert market.replicas(honest)[0].state == ReplicaState.PAYABLE
    assert [event["workers"] for event in market.events("audit_failed")] == [sorted(each.address for each in liars)]
    assert len(market.events("resumed")) == 1
    with market.reading() as reader:
        keys = {liar.address for liar in liars}
        assert strikes.barred_among(reader, keys, 0.0) == keys
    alone = new_market(rounds=2)
    for _ in range(3):
        alone.worker()
    alone.play()
    assert market.final_parameters() == alone.final_parameters()
    assert [found(market, shown(market, task)) for task in market.tasks()] == [set()] * 3
    assert all(market.earned()[worker.address] >= PRICE for worker in (honest, *others))
    check_books(market)


def test_until_its_audit_is_over_nobody_has_the_job_go_on(new_market: NewMarket) -> None:
    market = diverged(new_market, rounds=1)
    assert remedy(market) == "gradmarket auditor run"
    with pytest.raises(Conflict, match="run an auditor"):
        market.resume()
    assert market.state() == JobState.PAUSED
    assert [task.state for task in market.tasks()] == [TaskState.DIVERGED]
    check_books(market)


def test_honest_work_that_diverges_stays_the_reason_and_costs_nobody_anything(new_market: NewMarket) -> None:
    market = new_market(rounds=1, norm_bound=1e-6, **RARELY)
    workers = [market.worker() for _ in range(3)]
    market.play()
    SimAuditor(market).play()
    assert market.state() == JobState.PAUSED
    assert "norm_over_bound" in market.the_job().reason
    assert remedy(market) == f"gradmarket job cancel {market.job}", "its parameters give the same gradient again"
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert {(row.passed, row.failed) for row in market.all(Reputation)} == {(1, 0)}
    assert market.earned() == {worker.address: PRICE for worker in workers}
    market.resume()
    assert market.state() == JobState.RUNNING
    assert [task.state for task in market.tasks()] == [TaskState.FINAL, TaskState.COMMITTING]
    check_books(market)


def test_a_job_that_its_requester_paused_stays_paused(new_market: NewMarket) -> None:
    market = diverged(new_market, rounds=1)
    with market.context.begin() as work:
        work.get_one(Job, market.job).reason = "paused by its requester"
    SimAuditor(market).play()
    assert market.state() == JobState.PAUSED
    assert [task.state for task in market.tasks()] == [TaskState.REVOKED, TaskState.OPEN]


@FULL
@pytest.mark.parametrize("kind", leave_to_full([HUGE, filled("w", float("inf"))]), ids=["over the bound", "infinite"])
def test_without_audits_others_are_asked_before_three_wallets_pause_a_job(
    new_market: NewMarket, kind: Behaviour
) -> None:
    market = new_market(rounds=2)
    liars = [market.worker(kind) for _ in range(3)]
    market.gather(*liars), market.commit(*liars), market.reveal(*liars)
    assert market.task().state == TaskState.UPLOADING
    honest = [market.worker() for _ in range(3)]
    for worker in honest:
        worker.request_work()
    market.play()
    assert market.state() == JobState.FINISHED
    assert [event["task"] for event in market.events("asked_others")] == [market.tasks()[0].id]
    first, again, _ = market.tasks()
    assert (first.state, first.used, again.attempt) == (TaskState.FINAL, False, 1)
    assert {replica.worker for replica in market.replicas() if replica.task_id == again.id} == {
        worker.address for worker in honest
    }
    assert {market.earned()[liar.address] for liar in liars} == {PRICE}
    check_books(market)


@FULL
def test_honest_work_that_diverges_for_others_too_pauses_the_job(new_market: NewMarket) -> None:
    market = new_market(rounds=1, norm_bound=1e-6)
    workers = [market.worker() for _ in range(6)]
    market.play()
    assert market.state() == JobState.PAUSED
    assert "norm_over_bound" in market.the_job().reason
    assert [task.state for task in market.tasks()] == [TaskState.FINAL, TaskState.DIVERGED]
    assert market.earned() == {worker.address: PRICE for worker in workers}
    market.resume()
    assert [task.state for task in market.tasks()] == [TaskState.FINAL, TaskState.FINAL, TaskState.COMMITTING]
    check_books(market)


@FULL
def test_a_worker_set_aside_is_asked_again_once_the_requester_resumes(new_market: NewMarket) -> None:
    """The others that were to be asked are gone."""
    market = new_market(rounds=1)
    liars = [market.worker(HUGE) for _ in range(3)]
    market.gather(*liars), market.commit(*liars), market.reveal(*liars)
    for _ in range(3):
        market.worker().request_work()
    market.until(lambda: market.events("asked_others"), *liars)
    market.play(*liars, passes=10)
    assert (market.state(), len(market.earned())) == (JobState.RUNNING, 3)
    assert market.why_waiting()
    with market.context.begin() as work:
        work.set_state_now(work.get_one(Job, market.job), JobState.PAUSED, reason="paused by its requester")
    market.resume()
    market.play(*liars, passes=3)
    assert len(market.replicas(liars[0])) == 2


def test_a_job_without_audits_pauses_and_asks_nobody(new_market: NewMarket) -> None:
    market = new_market(rounds=1)
    market.worker(HUGE), market.worker(HUGE), market.worker()
    market.play()
    assert market.state() == JobState.PAUSED
    assert audits_of(market) == []
    market.resume()
    assert market.state() == JobState.RUNNING
