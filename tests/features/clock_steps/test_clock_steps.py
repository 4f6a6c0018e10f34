"""A clock that steps an hour forward and back: nobody is suspended, waited for or kept out for an hour."""

from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import text

from gradmarket.market.terms import AuditState, JobState
from requester.feature import look_after
from requester.features.audits.audit_tables import Audit, AuditedClass
from requester.features.clock_steps.steady_clock import ADOPT_S, SteadyClock
from requester.features.leftovers import leftover_rows
from requester.store import stored_times
from requester.store.tables import Account, Job, Replica, Strike, Task, Transaction, Worker
from tests.kit.behaviour import IDLE
from tests.kit.clock import SOME_DAY
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import CLASS

HOUR = 3600.0


class Machine:
    """A machine's two clocks, in seconds."""

    def __init__(self) -> None:
        self.wall, self.steady = SOME_DAY, 77.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.steady)

    def goes_on(self, seconds: float, step: float = 0.0) -> float:
        self.wall, self.steady = self.wall + seconds + step, self.steady + seconds
        return self.clock()


def test_a_step_forward_and_back_is_not_followed() -> None:
    machine = Machine()
    assert machine.goes_on(10.0, step=HOUR) == SOME_DAY + 10
    assert machine.goes_on(600.0) == SOME_DAY + 610
    assert machine.goes_on(10.0, step=-HOUR) == SOME_DAY + 620
    assert machine.goes_on(ADOPT_S * 2) == SOME_DAY + 620 + ADOPT_S * 2


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_that_stays_is_followed_in_the_end(step: float) -> None:
    machine = Machine()
    assert fell_back(machine)
    assert not fell_back(machine)
    machine.goes_on(10.0, step)
    assert machine.goes_on(ADOPT_S - 1) == SOME_DAY + 10 + ADOPT_S - 1
    assert machine.goes_on(1.0) == SOME_DAY + 10 + ADOPT_S + step
    assert fell_back(machine) is (step < 0)


def fell_back(machine: Machine) -> bool:
    mended: list[bool] = []
    machine.clock.after_fall(lambda: mended.append(True))
    return bool(mended)


def test_a_clock_that_is_slewed_is_followed_all_the_time() -> None:
    machine = Machine()
    for _ in range(100):
        machine.goes_on(60.0, step=0.03)
    assert machine.clock() == machine.wall


def test_each_step_is_noticed_on_its_own() -> None:
    machine = Machine()
    machine.goes_on(10.0, step=HOUR)
    machine.goes_on(ADOPT_S - 10, step=HOUR)
    assert machine.goes_on(20.0) == SOME_DAY + 20 + ADOPT_S
    assert machine.goes_on(ADOPT_S) == machine.wall


def times(market: Any) -> list[float]:
    """Every stored time that something waits for."""
    columns = (
        *(Strike.until, Strike.withheld_until, Strike.at, Worker.asking_until, Worker.seen_at, Account.rests_until),
        *(Replica.lease_until, Replica.leased_at, Task.due_at, Task.patience_until),
    )
    return [value for column in columns for row in market.all(column.class_) if (value := getattr(row, column.key))]


@FULL
def test_work_goes_on_at_once_after_an_hour_that_was_none(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    market.worker(IDLE)
    for _ in range(2):
        market.worker()
    market.clock.now += HOUR
    market.gather()
    market.lapse(21)
    late = [market.worker() for _ in range(3)]
    market.gather(*late)
    market.clock.now -= HOUR
    assert max(times(market)) > market.clock() + HOUR / 2
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) > 0
    spec_s = 3 * (market.task().offer.lease_seconds + market.task().offer.wave_seconds)
    assert max(times(market)) <= market.clock() + spec_s
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) == 0
    market.play(*late)
    assert market.state() == JobState.FINISHED
    check_books(market)


AGES: Final = (
    *(Job.created_at, Task.created_at, AuditedClass.asked_at, Audit.created_at, Audit.claimed_at, Audit.ended_at),
    *(Transaction.created_at, Transaction.sent_at),
)


def test_stored_ages_are_brought_back_after_the_clock_steps_back(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(audit={"probability": 1.0})
    for _ in range(3):
        market.worker()
    market.gather()
    ahead, now = market.clock() + HOUR, market.clock()
    with market.context.begin() as work:
        audit = Audit(task_id=market.task().id, job_id=market.job, round=0, state=AuditState.LAPSED, rate=1.0)
        audit.determinism_class, audit.reason, audit.created_at = CLASS, "", ahead
        audit.claimed_at = audit.ended_at = ahead
        work.add(audit)
        sent = {"sender": "0x", "nonce": 1, "kind": "reserve", "to": "0x", "data": b"", "state": "prepared"}
        work.add(Transaction(created_at=ahead, sent_at=ahead, **sent))
        work.get_one(Job, market.job).created_at = ahead
        work.get_one(AuditedClass, CLASS).asked_at = ahead
        work.get_one(Task, market.task().id).created_at = ahead
        work.flush()
        assert stored_times.bring_back(work, now) == len(AGES)
        assert stored_times.bring_back(work, now) == 0
    assert [getattr(row, column.key) for column in AGES for row in market.all(column.class_)] == [now] * len(AGES)


def test_jobs_that_were_posted_meanwhile_keep_their_order(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    market.clock.now += HOUR
    later = [f"{n:016x}" for n in (5, 3, 4)]
    for number, job in enumerate(later):
        market.also(job, 8 + number)
        market.clock.now += 60.0
    market.clock.now -= HOUR + 600
    with market.context.begin() as work:
        stored_times.bring_back(work, market.clock())
    listed = sorted(market.all(Job), key=lambda job: job.created_at)
    assert [job.id for job in listed if job.id in later] == later
    assert listed[-1].created_at <= market.clock()


def test_times_are_brought_back_once_the_database_that_failed_works_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    market.worker()
    context = replace(market.context, clock=SteadyClock(market.clock))
    with context.begin() as work:
        work.get_one(Worker, market.workers[0].address).seen_at = market.clock() + HOUR

    def rename(old: str, new: str) -> None:
        with context.sessions.kw["bind"].begin() as connection:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

    rename("strikes", "elsewhere")
    try:
        look_after(context)
    finally:
        rename("elsewhere", "strikes")
    assert max(times(market)) > market.clock() + HOUR / 2
    look_after(context)
    assert max(times(market)) <= market.clock()


def test_times_of_a_right_clock_stay_as_they_are(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    for _ in range(3):
        market.worker(IDLE)
    market.gather()
    before = times(market)
    with market.context.begin() as work:
        leftover_rows.delete_leftovers(work, market.clock(), HOUR)  # the next sweep is due long after any duty's end
        assert stored_times.bring_back(work, market.clock()) == 0
    assert times(market) == before
    look_after(market.context)
    assert times(market) == before
