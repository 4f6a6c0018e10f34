"""A job whose price follows its rounds' times: in the offers, the books and after a crash."""

import pytest

from gradmarket.market.messages import Outcome
from gradmarket.market.terms import JobState
from requester.store.tables import Job
from tests.lanes import FULL
from tests.requester.books import check_books

FIRST = 80
CONTROLLED = {"name": "controller", "floor": "60", "ceiling": "100", "start": str(FIRST), "target_ms": 1000}


def controlled(new_market, **spec):  # type: ignore[no-untyped-def]
    return new_market(price=CONTROLLED, rounds=4, **spec)


def prices(market) -> list[int]:  # type: ignore[no-untyped-def]
    return [row.price for row in market.rounds()]


def test_each_round_pays_its_own_price_and_the_books_agree(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market)
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert len(set(prices(market))) > 1
    assert all(60 <= price <= 100 for price in prices(market))
    assert all(task.offer.price == prices(market)[task.round] for task in market.tasks())
    assert set(market.earned().values()) == {sum(prices(market))}
    check_books(market)


def test_slow_rounds_raise_the_price_to_the_ceiling_alone(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market)
    for _ in range(3):
        market.worker()
    market.play()
    assert prices(market) == [80, 90, 100, 100]


@FULL
def test_a_crash_between_rounds_changes_no_price(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market)
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *workers)
    before = prices(market)
    market.crash()
    market.play()
    assert prices(market)[:2] == before == [80, 90]
    check_books(market)


@FULL
def test_a_verdict_names_the_price_of_its_own_round(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market)
    worker, *_ = [market.worker() for _ in range(3)]
    market.play()
    told = [held.told.price for held in worker.held.values() if held.told.outcome == Outcome.ACCEPTED]
    assert sum(told) == market.account(worker).earned


@FULL
def test_a_reservation_of_the_old_price_waits_for_the_new_one(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market)
    for _ in range(3):
        market.worker(reserved=80 + 89)
    market.play(passes=20)
    assert prices(market) == [80, 90]
    assert "no money is reserved" in market.why_waiting()


def test_a_worker_that_wants_more_of_this_job_gets_no_lease_of_it(new_market) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market, tasks_per_round=2)
    dear, *content = [market.worker() for _ in range(4)]
    dear.send_poll(min_prices={market.job: FIRST + 1})
    for worker in content:
        worker.send_poll(min_prices={market.job: FIRST, "00000000000000bb": 10**9})
    market.drive()
    assert {replica.worker for replica in market.replicas()} == {worker.address for worker in content}
    dear.receive_answer()
    assert "higher price" in dear.waiting


@pytest.mark.parametrize(("second", "state"), [(90, JobState.RUNNING), (89, JobState.PAUSED)])
def test_a_round_opens_only_if_the_deposit_covers_its_own_price(new_market, second, state) -> None:  # type: ignore[no-untyped-def]
    market = controlled(new_market, replication={"name": "fixed", "replicas": 2, "max_replicas": 2})
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.budget = job.deposited = 2 * FIRST + 2 * second
    workers = [market.worker() for _ in range(2)]
    market.until(lambda: market.rounds()[0].state == "closed", *workers)
    assert market.state() == state
