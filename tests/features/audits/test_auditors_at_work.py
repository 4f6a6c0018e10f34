"""Auditors that cannot compute, take long, or have several jobs to serve: no job is locked, none starves another."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gradmarket.market.features.audits import auditing, class_checks
from gradmarket.market.features.audits.auditing import Turn
from gradmarket.market.terms import AuditState, JobState, TaskState
from requester.features.audits import audited_classes, auditor_claims
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import open_job, prove
from tests.kit.behaviour import NOISE
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, DEADLINES, PRICE, MarketFixture

NewMarket = Callable[..., MarketFixture]
OTHER_JOB = "00000000000000bb"
LEASE_S = float(DEADLINES["lease_s"])


def take_in_vain(market: MarketFixture, auditor: SimAuditor) -> None:
    """Each start of the auditor takes the audit and dies of it, as one whose memory the task exceeds."""
    for _ in range(class_checks.ATTEMPTS):
        assert auditor.claim() is not None
        market.lapse(LEASE_S + 1.0)
    market.workers[0].request_work()


@FULL
def test_a_task_that_no_auditor_can_compute_is_voted_again(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=2)
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: market.task().state == TaskState.REFERRED)
    take_in_vain(market, auditor)
    assert auditor.claim() is None
    assert [audit.state for audit in audits_of(market)] == [AuditState.LAPSED]
    assert market.tasks()[0].reason == f"3 runs of auditors of its class {CLASS} gave no answer"
    market.until(lambda: market.state() == JobState.FINISHED)
    assert market.earned() == {worker.address: 2 * PRICE for worker in workers}
    check_books(market)


@FULL
def test_fresh_identities_gain_no_vote_where_an_auditor_fails_that_was_able(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=3)
    honest = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    auditor.work()
    market.until(lambda: market.task().round == 1 and market.task().state == TaskState.REFERRED)
    ring = [market.worker(NOISE) for _ in range(3)]
    take_in_vain(market, auditor)
    for _ in range(30):
        market.gather()
        market.lapse(2.0)
    assert not any(market.replicas(liar) for liar in ring)
    assert "0 of 3 proven workers are here to vote" in market.why_waiting()
    market.lapse(class_checks.UNABLE_S)
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert set(market.earned()) == {honest.address}
    assert market.final_parameters() == clean_parameters(new_market, rounds=3)
    check_books(market)


@FULL
def test_proven_ones_alone_vote_while_an_auditor_fails(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, replication={"audit": 0.99})
    proven = [market.worker() for _ in range(3)]
    prove(market, *proven)
    market.until(lambda: market.tasks()[0].state == TaskState.ACCEPTED)
    take_in_vain(market, auditor)
    market.gather()
    ring = [market.worker(NOISE) for _ in range(4)]
    market.until(lambda: market.state() == JobState.FINISHED)
    assert not any(market.replicas(liar) for liar in ring)
    assert set(market.earned()) == {worker.address for worker in proven}
    check_books(market)


@FULL
def test_an_audit_of_a_vote_that_nobody_can_compute_locks_no_round(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, rounds=4, replication={"audit": 0.99})
    prove(market, *(market.worker() for _ in range(3)))
    market.until(lambda: market.tasks()[0].state == TaskState.ACCEPTED)
    take_in_vain(market, auditor)
    assert market.tasks()[0].state == TaskState.REVOKED
    market.until(lambda: market.state() == JobState.FINISHED)
    check_books(market)


@FULL
def test_a_job_of_single_replicas_names_the_auditor_it_waits_for(new_market: NewMarket) -> None:
    market = new_market(replication={"name": "audited", "audit": 1.0})
    auditor, _worker = SimAuditor(market), market.worker()
    market.until(lambda: market.task().state == TaskState.ACCEPTED)
    take_in_vain(market, auditor)
    market.play(passes=3)
    assert market.task().state == TaskState.OPEN
    assert "gradmarket auditor run" in market.why_waiting()
    market.lapse(class_checks.UNABLE_S)
    auditor.play()
    assert market.state() == JobState.FINISHED
    check_books(market)


@FULL
def test_an_auditor_that_renews_its_claim_counts_as_present_and_keeps_its_audit(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    claimed = auditor.claim()
    assert claimed is not None
    for _ in range(int(class_checks.UNHEARD_S / 15.0) + 2):
        market.lapse(15.0)
        worker.request_work()
        auditor_claims.renew_held_audit(market.context, auditor.asker, claimed.task)
    with market.reading() as reader:
        assert list(reader.session.scalars(audited_classes.select_classes_there(market.clock()))) == [CLASS]
    assert SimAuditor(market, name="another").claim() is None
    auditor.answer(claimed)
    market.drive()
    market.play()
    assert market.earned() == {worker.address: PRICE}


def test_an_audit_is_held_for_two_hours_at_most_and_by_nobody_else(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market)
    market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    claimed = auditor.claim()
    assert claimed is not None
    auditor_claims.renew_held_audit(market.context, replace(auditor.asker, auditor="a thief"), claimed.task)
    (audit,) = audits_of(market)
    assert audit.claimed_until == market.clock() + LEASE_S
    market.clock.now += class_checks.HELD_S + 1.0
    auditor_claims.renew_held_audit(market.context, auditor.asker, claimed.task)
    assert SimAuditor(market, name="another").claim() is not None


def test_a_job_with_many_audits_does_not_starve_another(new_market: NewMarket) -> None:
    market, auditor = open_job(new_market, tasks_per_round=4)
    for _ in range(5):
        market.worker()
    market.also(OTHER_JOB, 8, replication={"name": "proven"})
    market.until(lambda: [task.state for task in market.tasks()] == [TaskState.REFERRED] * 5)
    taken = [claimed.job for _ in range(5) if (claimed := auditor.claim())]
    assert set(taken[:2]) == {market.job, OTHER_JOB}


def test_while_the_service_is_away_no_audit_lapses(new_market: NewMarket) -> None:
    """The stages run in other processes (Celery) and go on."""
    market, auditor = open_job(new_market)
    worker = market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    market.lapse(20 * class_checks.UNHEARD_S)
    with market.context.begin() as work:
        audited_classes.renew_classes(work, market.clock())
    worker.send_poll()
    market.drive()
    assert [audit.state for audit in audits_of(market)] == [AuditState.DUE]
    auditor.play()
    assert market.earned() == {worker.address: PRICE}


@pytest.mark.parametrize(
    ("served", "order"),
    [
        ([], ["many", "also", "small"]),
        ([Turn("many", "mallory", 9.0)], ["small", "also", "many"]),
        ([Turn("small", "alice", 9.0), Turn("many", "mallory", 8.0)], ["also", "many", "small"]),
        ([Turn("also", "mallory", 7.0), Turn("small", "alice", 8.0)], ["many", "also", "small"]),
    ],
    ids=["nobody served", "by requester first", "then by job", "several jobs are one requester's"],
)
def test_turns_go_over_requesters_and_their_jobs(served: list[Turn], order: list[str]) -> None:
    waiting = [Turn("many", "mallory", 1.0), Turn("also", "mallory", 2.0), Turn("small", "alice", 3.0)]
    assert auditing.order_turns(waiting, served) == order
