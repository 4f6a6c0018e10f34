"""Where auditing outgrows the auditor, one more indistinguishable seat takes the place of an audit."""

from collections.abc import Callable

import pytest

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.terms import Hash, JobState, ReplicaState, TaskState
from requester.features.audits import audit_rows
from requester.features.audits.audit_tables import Audit
from requester.store.tables import Job, Replica, Task
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import evidence, failed, open_job, prove
from tests.kit.behaviour import scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.test_verdicts_replayed import found, shown
from tests.requester.test_without_auditor import wait_for_an_auditor

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
LATE_S = seat_rules.AUDITED_WITHIN_S + 10.0


CERTAIN = 1.0 - 1e-9
"""A share of audits, and of hidden seats in their place, that is not referred before the acceptance."""


def outgrow(new_market: NewMarket, honest: int, liars: int = 0) -> tuple[MarketFixture, SimAuditor]:
    """Returns a market with proven workers and an auditor that leaves the first round's audits for too long."""
    market, auditor = open_job(new_market, rounds=5, replication={"audit": CERTAIN})
    known = [market.worker() for _ in range(honest + liars)]
    prove(market, *known)
    market.until(lambda: audits_of(market))
    for worker in known[honest:]:
        worker.behaviour = LIE
    with market.context.begin() as work:
        for audit in audits_of(market):
            work.get_one(Audit, audit.task_id).created_at -= LATE_S
    return market, auditor


def decided(market: MarketFixture) -> Task:
    """The second round's task, once its ballots are revealed."""
    before = (TaskState.OPEN, TaskState.COMMITTING, TaskState.REVEALING)

    def of_second() -> list[Task]:
        return [task for task in market.tasks() if task.round == 1 and task.state not in before]

    market.until(of_second)
    return of_second()[0]


@FULL
def test_a_seat_more_replaces_late_audits_and_all_four_are_paid(new_market: NewMarket) -> None:
    market, auditor = outgrow(new_market, honest=5)
    task = decided(market)
    assert (task.plan.first_wave, task.plan.quorum, task.plan.audit) == (4, 4, 0.0)
    market.until(lambda: market.all(Task, Task.id == task.id)[0].state in (TaskState.ACCEPTED, TaskState.FINAL))
    assert task.id not in {audit.task_id for audit in audits_of(market)}
    states = [row.state for row in market.all(Replica, Replica.task_id == task.id)]
    assert states == [ReplicaState.PAYABLE] * 4
    auditor.play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=5)
    check_books(market)


def test_a_ring_that_holds_three_of_four_seats_is_found_by_the_fourth(new_market: NewMarket) -> None:
    market, auditor = outgrow(new_market, honest=1, liars=3)
    task = decided(market)
    assert (task.plan.first_wave, task.state) == (4, TaskState.REFERRED)
    auditor.work(), auditor.work()
    market.drive()
    liars = {worker.address for worker in market.workers if worker.behaviour is LIE}
    assert failed(market) == liars
    ends = {row.state for row in market.all(Replica, Replica.task_id == task.id) if row.worker in liars}
    assert ends == {ReplicaState.REJECTED}


def test_a_hidden_seat_s_lease_looks_like_a_vote_s(new_market: NewMarket) -> None:
    market, _ = outgrow(new_market, honest=4)
    market.gather()
    leases = [held.lease.model_dump() for worker in market.workers for held in worker.held.values()]
    hidden = [lease for lease in leases if lease["offer"]["round"] == 1]
    voted = [lease for lease in leases if lease["offer"]["round"] == 0]
    assert (len(hidden), len(voted)) == (4, 3)
    own = {"replica", "fence"}
    alike = [{name: value for name, value in lease.items() if name not in own} for lease in hidden]
    assert all(lease == alike[0] for lease in alike)
    assert (set(hidden[0]), set(hidden[0]["offer"])) == (set(voted[0]), set(voted[0]["offer"]))


@FULL
def test_where_the_auditor_keeps_up_or_the_deposit_ends_there_is_no_hidden_seat(new_market: NewMarket) -> None:
    market, auditor = outgrow(new_market, honest=4)
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = 5 * 3 * PRICE
    assert (decided(market).plan.first_wave, decided(market).plan.audit) == (3, 1.0)
    market, auditor = open_job(new_market, rounds=5, replication={"audit": CERTAIN})
    prove(market, *(market.worker() for _ in range(4)))
    market.until(lambda: audits_of(market))
    auditor.work()
    assert (decided(market).plan.first_wave, decided(market).plan.audit) == (3, pytest.approx(CERTAIN))


def test_a_panel_of_another_job_that_nobody_completes_makes_no_auditor_late(new_market: NewMarket) -> None:
    market, _ = open_job(new_market, rounds=5, replication={"audit": CERTAIN})
    prove(market, *(market.worker() for _ in range(4)))
    market.until(lambda: audits_of(market))
    other, now = "00000000000000bb", market.clock()
    market.also(other, 9, audit={"probability": 1.0, "auditors": {"count": 2, "agree": 2}})
    with market.context.begin() as work:
        job, (own,) = work.get_one(Job, market.job), audits_of(market)
        audit = work.get_one(Audit, own.task_id)
        audit.job_id, audit.created_at = other, now - LATE_S
        work.flush()
        assert audit_rows.compute_longest_wait(work, job, 0, now) == 0.0
        work.get_one(Job, other).spec = work.get_one(Job, market.job).spec
        work.flush()
        assert audit_rows.compute_longest_wait(work, job, 0, now) == LATE_S, "one that an auditor leaves waits for it"


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 1.0])
def test_seats_are_hidden_as_often_as_audits_were_drawn(rate: float) -> None:
    drawn = [seat_rules.is_seat_hidden(Hash(number.to_bytes(32, "big")), rate) for number in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(rate, abs=0.03)


def vote_without_auditor(new_market: NewMarket, honest: int, liars: int, **spec: object) -> MarketFixture:
    """Proven workers of a class for which no auditor ever asked; each task but the last rounds' has a hidden seat."""
    market = new_market(audited_classes=(), replication={"name": "proven", "audit": CERTAIN}, **{"rounds": 3} | spec)
    known = [*(market.worker() for _ in range(honest)), *(market.worker(LIE) for _ in range(liars))]
    prove(market, *known)
    wait_for_an_auditor(market)
    return market


@FULL
def test_where_no_auditor_exists_a_seat_more_joins_the_vote_of_proven_ones(new_market: NewMarket) -> None:
    market = vote_without_auditor(new_market, honest=5, liars=0)
    market.one_by_one = True
    market.play()
    assert market.state() == JobState.FINISHED
    plans = [(task.plan.first_wave, task.plan.quorum, task.plan.maximum) for task in market.tasks()]
    assert plans == [(4, 4, 6), (4, 4, 6), (3, 2, 3)], "the deposit pays for two"
    assert sum(market.earned().values()) == 11 * PRICE
    assert audits_of(market) == []
    for task in market.tasks():
        assert found(market, shown(market, task)) == set()
    check_books(market)


@FULL
def test_two_liars_that_would_win_a_vote_of_three_are_outvoted_by_the_hidden_seat(new_market: NewMarket) -> None:
    market = vote_without_auditor(new_market, honest=4, liars=2, rounds=1)
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=1)
    liars = [worker for worker in market.workers if worker.behaviour is LIE]
    assert not set(market.earned()) & {liar.address for liar in liars}
    assert all(evidence(market, liar) <= 8.0 for liar in liars if market.replicas(liar)), "proven no more"
    check_books(market)


@FULL
def test_a_ring_that_splits_a_hidden_vote_is_outvoted_by_the_next_one(new_market: NewMarket) -> None:
    """Three of four hold no quorum; once others agree with one voice, their equal answers count as outvoted."""
    market = vote_without_auditor(new_market, honest=1, liars=3, rounds=1)
    liars = [worker for worker in market.workers if worker.behaviour is LIE]
    market.until(lambda: market.task().plan.first_wave == 4 and market.task().state != TaskState.OPEN)
    market.take_turns(*liars)
    more = [market.worker() for _ in range(5)]
    prove(market, *more)
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.tasks()[0].state == TaskState.FAILED
    assert {round(evidence(market, liar)) for liar in liars} == {8}
    assert market.final_parameters() == clean_parameters(new_market, rounds=1)
    check_books(market)


@FULL
def test_where_the_voters_or_the_deposit_are_too_few_no_seat_is_added(new_market: NewMarket) -> None:
    market = vote_without_auditor(new_market, honest=3, liars=0)
    market.play()
    assert {task.plan.first_wave for task in market.tasks()} == {3}
    market = vote_without_auditor(new_market, honest=4, liars=0)
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = 3 * 3 * PRICE
    market.play()
    assert {task.plan.first_wave for task in market.tasks() if task.round > 0} == {3}
