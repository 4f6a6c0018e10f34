"""`adaptive` in the service: newcomers' tasks are voted on, who is proven and has staked works alone and is audited."""

from collections.abc import Callable
from typing import Any

import pytest
from books import check_books
from databases import SQLITE
from market_auditor import SimAuditor
from market_floor import CLASS, PRICE, Floor
from market_workers import SimWorker, scaled
from sqlalchemy import update

from gradmarket.market.rules.replication import Plan
from gradmarket.market.terms import AccusationState, JobState, TaskState
from gradmarket.requester.api.audits import audits as audits_told
from gradmarket.requester.api.payments import worker as worker_told
from gradmarket.requester.api.rounds import evidence_of
from gradmarket.requester.api.views.tasks import TaskEvidence
from gradmarket.requester.store import jobs, reputations
from gradmarket.requester.store.tables import Account, Event, Job, Reputation

NewFloor = Callable[..., Floor]
JUDGES = {"validators": ["0x" + "11" * 20], "bond": "1"}
VOTES, ALONE = (3, 2, 5), (1, 1, 1)
PROVEN = 400
"""Audits passed, enough for the floor."""


def adaptive(**spec: Any) -> dict[str, Any]:
    return {"replication": {"name": "adaptive"}, "stake": JUDGES, "rounds": 1} | spec


def stake(floor: Floor, worker: SimWorker, prices: int) -> None:
    """As the chain's mirror writes it."""
    with floor.context.begin() as session:
        mine = update(Account).where(Account.worker == worker.address, Account.job_id == floor.job)
        session.execute(mine.values(at_risk=prices * PRICE))


def prove(floor: Floor, worker: SimWorker, audits: int = PROVEN) -> None:
    """It has passed so many audits elsewhere."""
    now = floor.clock()
    with floor.context.begin() as session:
        record = {"determinism_class": CLASS, "evidence": float(audits), "at": now, "passed": audits, "failed": 0}
        session.add(Reputation(operator=worker.address, failed_at=None, **record))


def trusted(floor: Floor, **behaviour: Any) -> SimWorker:
    made = floor.worker(**behaviour)
    stake(floor, made, 1000), prove(floor, made)
    return made


def here(floor: Floor) -> None:
    """Everybody says its class, and asks for nothing."""
    for worker in floor.workers:
        worker.say(capacity=0)


def shape(task: Any) -> tuple[int, int, int]:
    return task.plan["first_wave"], task.plan["quorum"], task.plan["maximum"]


@SQLITE
def test_newcomers_are_voted_on_and_audited_at_the_floor(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive())
    for _ in range(3):
        floor.worker()
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert {shape(task) for task in floor.tasks()} == {VOTES}
    assert {task.plan["audit"] for task in floor.tasks()} == {0.05}
    assert len(floor.replicas()) == 3
    check_books(floor)


def test_who_is_proven_and_staked_works_alone(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive(tasks_per_round=2, rounds=2))
    workers = [trusted(floor) for _ in range(3)]
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert {shape(task) for task in floor.tasks()} == {ALONE}
    assert all(0.05 <= task.plan["audit"] <= 0.051 for task in floor.tasks())
    assert len(floor.replicas()) == 4
    assert sum(floor.earned().values()) == 4 * PRICE
    assert set(floor.earned()) <= {worker.address for worker in workers}
    check_books(floor)


@SQLITE
def test_a_stake_without_a_record_is_audited_nearly_always_and_grows_one(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive(tasks_per_round=2, rounds=3))
    for _ in range(3):
        stake(floor, floor.worker(), 1000)
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    rates = [task.plan["audit"] for task in floor.tasks()]
    assert rates[0] == pytest.approx(0.98)
    assert min(rates) < 0.98
    assert {shape(task) for task in floor.tasks()} == {ALONE}


@SQLITE
def test_a_record_without_a_stake_is_worth_no_task_of_ones_own(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive())
    for _ in range(3):
        prove(floor, floor.worker())
    SimAuditor(floor).play()
    assert {shape(task) for task in floor.tasks()} == {VOTES}


@SQLITE
def test_the_sleepers_lie_is_found_taken_back_and_its_standing_gone(new_floor: NewFloor) -> None:
    """It was honest until it was trusted, and lies in all it is given from then on."""
    floor = new_floor(**adaptive(tasks_per_round=3, rounds=2, replication={"name": "adaptive", "floor": 0.5}))
    auditor, _ = SimAuditor(floor), [trusted(floor) for _ in range(2)]
    sleeper = trusted(floor)
    sleeper.behaviour = scaled(3.0)
    auditor.play(passes=40)
    assert floor.state() == JobState.FINISHED
    caught = min(event.at for event in floor.all(Event, Event.kind == "audit_failed"))
    lies = {replica.task_id for replica in floor.replicas(sleeper)}
    revoked = {task.id for task in floor.tasks() if task.state == TaskState.REVOKED}
    assert revoked
    assert revoked <= lies
    assert {worker for event in floor.events("audit_failed") for worker in event["workers"]} == {sleeper.address}
    assert not [replica for replica in floor.replicas(sleeper) if replica.leased_at > caught]
    with floor.reading() as session:
        (record,) = reputations.of(session, sleeper.address)
        assert (record.evidence, reputations.standing(record, floor.clock())) == (0.0, 0.0)
    assert revoked == lies
    accused = [each for audit in audits_told(floor.context, floor.job, limit=100).items for each in audit.accusations]
    assert {(each.worker, each.state) for each in accused} == {(sleeper.address, AccusationState.DUE)}
    assert len({each.case for each in accused}) == len(accused) == len(lies)
    clean = new_floor(tasks_per_round=3, rounds=2)
    for _ in range(3):
        clean.worker()
    clean.play()
    assert floor.final_parameters() == clean.final_parameters()
    check_books(floor)


@SQLITE
def test_who_gives_a_lease_back_hands_nobody_its_own_plan(new_floor: NewFloor) -> None:
    """A sibling that is proven takes the task and declines, so that the liar is drawn for it alone: it is not."""
    floor = new_floor(**adaptive())
    liars = [floor.worker(scaled(3.0)), floor.worker(scaled(3.0))]
    sibling = trusted(floor)
    here(floor)
    floor.gather(sibling)
    assert shape(floor.task()) == ALONE
    sibling.say(given_up=[sibling.give_up(sibling.newest())])
    floor.gather(*liars)
    assert all(not liar.held for liar in liars)
    floor.worker()
    floor.gather(*floor.workers)
    assert shape(floor.task()) == VOTES


@SQLITE
def test_a_burst_raises_its_own_probability_and_ends_where_the_stake_does(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive(tasks_per_round=4))
    greedy, *_ = [floor.worker() for _ in range(3)]
    prove(floor, greedy), stake(floor, greedy, 2)
    greedy.capacity = 4
    here(floor)
    floor.gather(greedy)
    alone = [task for task in floor.tasks() if shape(task) == ALONE]
    assert sorted(task.plan["audit"] for task in alone) == [pytest.approx(1.0 - 0.05**0.5), 1.0]
    assert len(greedy.held) == 2


@SQLITE
def test_how_a_task_is_checked_is_told_when_it_is_over_and_proven_then(new_floor: NewFloor) -> None:
    floor = new_floor(**adaptive())
    worker, *_ = [trusted(floor) for _ in range(3)]
    floor.gather()
    assert told(floor).plan is None
    SimAuditor(floor).play()
    (task,) = floor.tasks()
    plan = told(floor).plan
    assert plan is not None
    assert plan.model_dump() == task.plan
    with floor.reading() as session:
        spec = jobs.spec(session.get_one(Job, floor.job))
    assert spec.may_check_so(Plan(**task.plan))
    assert not spec.may_check_so(Plan(1, 1, 1, 0.01))
    assert not spec.may_check_so(Plan(2, 1, 5, 0.05))
    assert [stake.at_risk for stake in worker_told(floor.context, worker.address).stakes] == [str(1000 * PRICE)]


def told(floor: Floor) -> TaskEvidence:
    with floor.reading() as session:
        return evidence_of(session, floor.task())
