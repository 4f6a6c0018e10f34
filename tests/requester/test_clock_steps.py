"""A clock that steps an hour forward and back: nobody is suspended, waited for or kept out for an hour."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from gradmarket.market.terms import JobState
from requester.moves.probing import look_after
from requester.steady_clock import ADOPT_S, SteadyClock
from requester.store import leftovers, stored_times
from requester.store.tables import Account, Replica, Strike, Task, Worker
from tests.kit.behaviour import IDLE
from tests.kit.clock import SOME_DAY
from tests.requester.books import check_books

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


def test_work_goes_on_at_once_after_an_hour_that_was_none(new_floor) -> None:  # type: ignore[no-untyped-def]
    market = new_floor()
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


def test_times_are_brought_back_once_the_database_that_failed_works_again(new_floor) -> None:  # type: ignore[no-untyped-def]
    market = new_floor()
    market.worker()
    context = replace(market.context, after_fall=Machine().clock.after_fall)
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


def test_times_of_a_right_clock_stay_as_they_are(new_floor) -> None:  # type: ignore[no-untyped-def]
    market = new_floor()
    for _ in range(3):
        market.worker(IDLE)
    market.gather()
    before = times(market)
    with market.context.begin() as work:
        leftovers.delete_leftovers(work, market.clock(), HOUR)  # the next sweep is due long after any duty's end
        assert stored_times.bring_back(work, market.clock()) == 0
    assert times(market) == before
    look_after(market.context)
    assert times(market) == before
