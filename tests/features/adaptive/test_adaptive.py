"""`adaptive` in the service: newcomers' tasks are voted on; proven and staked workers work alone and are audited."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import update

from gradmarket.market.features.records import TaskEvidence
from gradmarket.market.rules.replication import BEST, lies_between
from gradmarket.market.terms import AccusationState, JobState, Plan, TaskState
from requester.features import reputation as reputations
from requester.features.audits.audit_routes import audits as audits_told
from requester.features.records import stakes_of
from requester.features.records.evidence_routes import evidence_of
from requester.store import jobs
from requester.store.tables import Account, Job, JobEvent, Reputation
from tests.kit.behaviour import scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
JUDGES = {"validators": ["0x" + "11" * 20], "bond": "1"}
VOTES, ALONE = (3, 2, 5), (1, 1, 1)
PROVEN = 400
"""Audits passed, enough for the market fixture."""


def adaptive(**spec: Any) -> dict[str, Any]:
    return {"replication": {"name": "adaptive"}, "stake": JUDGES, "rounds": 1} | spec


def stake(market: MarketFixture, worker: SimWorker, prices: int) -> None:
    """As the chain's mirror writes it."""
    with market.context.begin() as work:
        mine = update(Account).where(Account.worker == worker.address, Account.job_id == market.job)
        work.session.execute(mine.values(at_risk=prices * PRICE))


def prove(market: MarketFixture, worker: SimWorker, audits: int = PROVEN) -> None:
    """Records this many audits that it passed elsewhere."""
    now = market.clock()
    with market.context.begin() as work:
        record = {"determinism_class": CLASS, "evidence": float(audits), "at": now, "passed": audits, "failed": 0}
        record |= {"paid": 1e9, "computed": 1e18}  # for answers as dear as any
        work.add(Reputation(operator=worker.address, failed_at=None, **record))


def trusted(market: MarketFixture, **behaviour: Any) -> SimWorker:
    made = market.worker(**behaviour)
    stake(market, made, 1000), prove(market, made)
    return made


def here(market: MarketFixture) -> None:
    """Everybody is there and asks for nothing, in a job that has settled on their class."""
    for worker in market.workers:
        worker.send_poll(capacity=0)
    with market.context.begin() as work:
        work.get_one(Job, market.job).determinism_class = CLASS


def shape(task: Any) -> tuple[int, int, int]:
    return task.plan.first_wave, task.plan.quorum, task.plan.maximum


def test_newcomers_are_voted_on_and_audited_at_the_floor(new_market: NewMarket) -> None:
    market = new_market(**adaptive())
    for _ in range(3):
        market.worker()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert {shape(task) for task in market.tasks()} == {VOTES}
    assert {task.plan.audit for task in market.tasks()} == {0.05}
    assert len(market.replicas()) == 3
    check_books(market)


@FULL
def test_proven_and_staked_workers_work_alone(new_market: NewMarket) -> None:
    market = new_market(**adaptive(tasks_per_round=2, rounds=2))
    workers = [trusted(market) for _ in range(3)]
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert {shape(task) for task in market.tasks()} == {ALONE}
    assert all(0.05 <= task.plan.audit <= 0.051 for task in market.tasks())
    assert len(market.replicas()) == 4
    assert sum(market.earned().values()) == 4 * PRICE
    assert set(market.earned()) <= {worker.address for worker in workers}
    check_books(market)


def test_a_stake_without_a_record_is_audited_nearly_always_and_grows_one(new_market: NewMarket) -> None:
    market = new_market(**adaptive(tasks_per_round=2, rounds=3))
    for _ in range(3):
        stake(market, market.worker(), 1000)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    rates = [task.plan.audit for task in market.tasks()]
    assert rates[0] == pytest.approx(0.98)
    assert min(rates) < 0.98
    assert {shape(task) for task in market.tasks()} == {ALONE}


def test_a_record_without_a_stake_is_worth_no_task_of_ones_own(new_market: NewMarket) -> None:
    market = new_market(**adaptive())
    for _ in range(3):
        prove(market, market.worker())
    SimAuditor(market).play()
    assert {shape(task) for task in market.tasks()} == {VOTES}


@FULL
def test_the_sleepers_lie_is_found_taken_back_and_its_standing_gone(new_market: NewMarket) -> None:
    """It was honest until it was trusted, and lies in all it is given from then on."""
    market = new_market(**adaptive(tasks_per_round=3, rounds=2, replication={"name": "adaptive", "floor": 0.5}))
    auditor, _ = SimAuditor(market), [trusted(market) for _ in range(2)]
    sleeper = trusted(market)
    sleeper.behaviour = scaled(3.0)
    auditor.play(passes=40)
    assert market.state() == JobState.FINISHED
    caught = min(event.at for event in market.all(JobEvent, JobEvent.kind == "audit_failed"))
    lies = {replica.task_id for replica in market.replicas(sleeper)}
    revoked = {task.id for task in market.tasks() if task.state == TaskState.REVOKED}
    assert revoked
    assert revoked <= lies
    assert {worker for event in market.events("audit_failed") for worker in event["workers"]} == {sleeper.address}
    assert not [replica for replica in market.replicas(sleeper) if replica.leased_at > caught]
    with market.reading() as reader:
        (record,) = reputations.list_reputations(reader, sleeper.address)
        assert (record.evidence, reputations.compute_operator_standing(record, market.clock())) == (0.0, 0.0)
    assert revoked == lies
    accused = [each for audit in audits_told(market.context, market.job, limit=100).items for each in audit.accusations]
    assert {(each.worker, each.state) for each in accused} == {(sleeper.address, AccusationState.DUE)}
    assert len({each.case for each in accused}) == len(accused) == len(lies)
    clean = new_market(tasks_per_round=3, rounds=2)
    for _ in range(3):
        clean.worker()
    clean.play()
    assert market.final_parameters() == clean.final_parameters()
    check_books(market)


def test_a_returned_lease_does_not_pass_its_plan_to_another_worker(new_market: NewMarket) -> None:
    """A sibling that is proven takes the task and declines, so that the liar is drawn for it alone: it is not."""
    market = new_market(**adaptive())
    liars = [market.worker(scaled(3.0)), market.worker(scaled(3.0))]
    sibling = trusted(market)
    here(market)
    market.gather(sibling)
    assert shape(market.task()) == ALONE
    sibling.send_poll(given_up=[sibling.give_up(sibling.newest())])
    market.gather(*liars)
    assert all(not liar.held for liar in liars)
    market.worker()
    market.gather(*market.workers)
    assert shape(market.task()) == VOTES


def test_a_burst_raises_its_own_probability_and_ends_where_the_stake_does(new_market: NewMarket) -> None:
    market = new_market(**adaptive(tasks_per_round=4))
    greedy, *_ = [market.worker() for _ in range(3)]
    prove(market, greedy), stake(market, greedy, 2)
    greedy.capacity = 4
    here(market)
    market.gather(greedy)
    alone = [task for task in market.tasks() if shape(task) == ALONE]
    assert sorted(task.plan.audit for task in alone) == [pytest.approx(1.0 - 0.05**0.5), 1.0]
    assert len(greedy.held) == 2


def test_a_task_s_plan_is_published_once_it_is_over_and_can_be_proven(new_market: NewMarket) -> None:
    market = new_market(**adaptive())
    worker, *_ = [trusted(market) for _ in range(3)]
    market.gather()
    assert load_evidence(market).plan is None
    SimAuditor(market).play()
    (task,) = market.tasks()
    plan = load_evidence(market).plan
    assert plan is not None
    assert plan.model_dump() == asdict(task.plan)
    with market.reading() as reader:
        spec = jobs.load_spec(reader.get_one(Job, market.job))
        at_risk = [stake.at_risk for stake in stakes_of(reader, worker.address)]
    plans = spec.plan(), spec.plan(BEST)
    assert lies_between(task.plan, *plans)
    assert not lies_between(Plan(1, 1, 1, 0.01), *plans)
    assert not lies_between(Plan(2, 1, 5, 0.05), *plans)
    assert at_risk == [str(1000 * PRICE)]


def load_evidence(market: MarketFixture) -> TaskEvidence:
    with market.reading() as reader:
        return evidence_of(reader, market.task())
