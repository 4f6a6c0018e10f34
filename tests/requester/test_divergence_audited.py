"""What diverges in an audited job is audited for certain: a lie pauses nothing for long, honest work stays a reason."""

from collections.abc import Callable
from typing import Any

import pytest
from books import check_books
from market_auditor import SimAuditor, audits_of
from market_floor import PRICE, Floor
from market_workers import scaled

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import AuditState, JobState, ReplicaState, TaskState
from gradmarket.requester.stages.audit import SUSPECT
from gradmarket.requester.store import reputations
from gradmarket.requester.store.tables import Job, Reputation

NewFloor = Callable[..., Floor]
HUGE = scaled(1e9)
RARELY: dict[str, Any] = {"audit": {"probability": 1e-9}}
"""Nothing is drawn."""


def diverged(new_floor: NewFloor, **spec: Any) -> Floor:
    """Two liars beyond the bound who outvote an honest worker, and the job that they paused."""
    floor = new_floor(**(RARELY | spec))
    floor.worker(HUGE), floor.worker(HUGE), floor.worker()
    floor.play()
    assert floor.state() == JobState.PAUSED
    assert [(audit.reason, audit.rate, audit.state) for audit in audits_of(floor)] == [(SUSPECT, 1.0, AuditState.DUE)]
    return floor


def test_a_lie_that_diverges_is_found_and_the_job_goes_on_by_itself(new_floor: NewFloor) -> None:
    floor = diverged(new_floor, rounds=2)
    *liars, honest = floor.workers
    others = [floor.worker(), floor.worker()]
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    first, again, _ = floor.tasks()
    assert (first.state, again.state, again.attempt) == (TaskState.REVOKED, TaskState.FINAL, 1)
    assert {row.operator for row in floor.all(Reputation, Reputation.failed > 0)} == {liar.address for liar in liars}
    assert floor.replicas(honest)[0].state == ReplicaState.PAYABLE
    assert [event["workers"] for event in floor.events("audit_failed")] == [sorted(each.address for each in liars)]
    assert len(floor.events("resumed")) == 1
    with floor.reading() as session:
        keys = {liar.address for liar in liars}
        assert reputations.barred_among(session, keys, 0.0) == keys
    alone = new_floor(rounds=2)
    for _ in range(3):
        alone.worker()
    alone.play()
    assert floor.final_parameters() == alone.final_parameters()
    assert all(floor.earned()[worker.address] >= PRICE for worker in (honest, *others))
    check_books(floor)


def test_until_its_audit_is_over_nobody_has_the_job_go_on(new_floor: NewFloor) -> None:
    floor = diverged(new_floor, rounds=1)
    with pytest.raises(Conflict, match="run an auditor"):
        floor.resume()
    assert floor.state() == JobState.PAUSED
    assert [task.state for task in floor.tasks()] == [TaskState.DIVERGED]
    check_books(floor)


def test_honest_work_that_diverges_stays_the_reason_and_costs_nobody_anything(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=1, norm_bound=1e-6, **RARELY)
    workers = [floor.worker() for _ in range(3)]
    floor.play()
    SimAuditor(floor).play()
    assert floor.state() == JobState.PAUSED
    assert "norm_over_bound" in floor.the_job().reason
    assert [audit.state for audit in audits_of(floor)] == [AuditState.PASSED]
    assert {(row.passed, row.failed) for row in floor.all(Reputation)} == {(1, 0)}
    assert floor.earned() == {worker.address: PRICE for worker in workers}
    floor.resume()
    assert floor.state() == JobState.RUNNING
    assert [task.state for task in floor.tasks()] == [TaskState.FINAL, TaskState.COMMITTING]
    check_books(floor)


def test_a_job_that_its_requester_paused_stays_paused(new_floor: NewFloor) -> None:
    floor = diverged(new_floor, rounds=1)
    with floor.context.begin() as session:
        session.get_one(Job, floor.job).reason = "paused by its requester"
    SimAuditor(floor).play()
    assert floor.state() == JobState.PAUSED
    assert [task.state for task in floor.tasks()] == [TaskState.REVOKED, TaskState.OPEN]


def test_a_job_without_audits_pauses_and_asks_nobody(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=1)
    floor.worker(HUGE), floor.worker(HUGE), floor.worker()
    floor.play()
    assert floor.state() == JobState.PAUSED
    assert audits_of(floor) == []
    floor.resume()
    assert floor.state() == JobState.RUNNING
