"""A job whose price follows its rounds' times: in the offers, the books and after a crash."""

import pytest
from books import check_books
from databases import SQLITE

from gradmarket.market.messages import Outcome
from gradmarket.market.terms import JobState
from gradmarket.requester.store.tables import Job

FIRST = 80
CONTROLLED = {"name": "controller", "floor": "60", "ceiling": "100", "start": str(FIRST), "target_ms": 1000}


def controlled(new_floor, **spec):  # type: ignore[no-untyped-def]
    return new_floor(price=CONTROLLED, rounds=4, **spec)


def prices(floor) -> list[int]:  # type: ignore[no-untyped-def]
    return [row.price for row in floor.rounds()]


def test_each_round_pays_its_own_price_and_the_books_say_so(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor)
    for _ in range(3):
        floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert len(set(prices(floor))) > 1
    assert all(60 <= price <= 100 for price in prices(floor))
    assert all(task.offer["price"] == prices(floor)[task.round] for task in floor.tasks())
    assert set(floor.earned().values()) == {sum(prices(floor))}
    check_books(floor)


@SQLITE
def test_slow_rounds_raise_the_price_to_the_ceiling_alone(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor)
    for _ in range(3):
        floor.worker()
    floor.play()
    assert prices(floor) == [80, 90, 100, 100]


@SQLITE
def test_a_crash_between_rounds_changes_no_price(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor)
    workers = [floor.worker() for _ in range(3)]
    floor.until(lambda: len(floor.rounds()) == 2, *workers)
    before = prices(floor)
    floor.crash()
    floor.play()
    assert prices(floor)[:2] == before == [80, 90]
    check_books(floor)


@SQLITE
def test_a_verdict_names_the_price_of_its_own_round(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor)
    worker, *_ = [floor.worker() for _ in range(3)]
    floor.play()
    told = [held.told.price for held in worker.held.values() if held.told.outcome == Outcome.ACCEPTED]
    assert sum(told) == floor.account(worker).earned


@SQLITE
def test_who_is_reserved_the_old_price_alone_waits_for_the_new_one(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor)
    for _ in range(3):
        floor.worker(reserved=80 + 89)
    floor.play(passes=20)
    assert prices(floor) == [80, 90]
    assert "no money is reserved" in floor.why_waiting()


@SQLITE
def test_a_worker_that_wants_more_of_this_job_gets_no_lease_of_it(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor, tasks_per_round=2)
    dear, *content = [floor.worker() for _ in range(4)]
    dear.say(min_prices={floor.job: FIRST + 1})
    for worker in content:
        worker.say(min_prices={floor.job: FIRST, "00000000000000bb": 10**9})
    floor.drive()
    assert {replica.worker for replica in floor.replicas()} == {worker.address for worker in content}
    dear.hear()
    assert "higher price" in dear.waiting


@SQLITE
@pytest.mark.parametrize(("second", "state"), [(90, JobState.RUNNING), (89, JobState.PAUSED)])
def test_a_round_opens_only_if_its_own_price_is_there(new_floor, second, state) -> None:  # type: ignore[no-untyped-def]
    floor = controlled(new_floor, replication={"name": "fixed", "replicas": 2, "max_replicas": 2})
    with floor.context.begin() as session:
        session.get_one(Job, floor.job).deposited = 2 * FIRST + 2 * second
    workers = [floor.worker() for _ in range(2)]
    floor.until(lambda: floor.rounds()[0].state == "closed", *workers)
    assert floor.state() == state
