"""An ending job pays right answers in the leases of tasks that one replica decides, and no wrong ones."""

from collections.abc import Callable

import pytest

from gradmarket.market.errors import Conflict, Refused
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.market.wire.poll import Answer
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "tasks_per_round": 2}


def cancelled(market: MarketFixture) -> list[SimWorker]:
    """Two workers with a lease each, of a job that was cancelled meanwhile."""
    workers = [market.worker(), market.worker()]
    market.gather()
    market.cancel()
    return workers


def test_a_payload_under_way_when_the_job_ends_is_paid(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    first, second = cancelled(market)
    assert market.state() == JobState.CANCELLED
    assert {replica.state for replica in market.replicas()} == {ReplicaState.LEASED}
    told = first.answer(first.newest())
    assert [verdict.state for verdict in told.verdicts] == [ReplicaState.PAYABLE]
    assert market.earned() == {first.address: PRICE}
    second.answer(second.newest())
    assert {task.state for task in market.tasks()} == {TaskState.ACCEPTED}
    assert market.earned() == {first.address: PRICE, second.address: PRICE}
    check_books(market)


def test_a_silent_lease_holds_up_an_ended_job_no_longer_than_its_time(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    late, quitter = cancelled(market)
    lease = late.newest()
    quitter.send_poll(given_up=[quitter.give_up(quitter.newest())])
    market.lapse(21)
    assert {task.state for task in market.tasks()} == {TaskState.CANCELLED}
    assert sorted(replica.state for replica in market.replicas()) == [ReplicaState.ABANDONED, ReplicaState.EXPIRED]
    with pytest.raises(Refused):
        late.answer(lease)
    assert market.earned() == {}
    check_books(market)


def test_a_withheld_payload_holds_up_an_ended_job_for_an_upload_s_time(
    new_market: NewMarket,
) -> None:
    market = new_market(**ALONE)
    staller, quitter = cancelled(market)
    held = staller.computed(staller.newest())
    staller.send_poll(answers=(Answer(commitment=staller.commitment(held), salt=held.salt, root=held.root),))
    quitter.send_poll(given_up=[quitter.give_up(quitter.newest())])
    market.lapse(21)
    assert sorted(task.state for task in market.tasks()) == [TaskState.CANCELLED, TaskState.FAILED]
    assert market.replica(staller).state == ReplicaState.WITHHELD
    assert market.earned() == {}
    check_books(market)


def test_a_cancelled_task_is_given_to_no_further_worker(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    late, _other = cancelled(market)
    idle = market.worker()
    late.send_poll(given_up=[late.give_up(late.newest())])
    idle.request_work()
    assert not market.replicas(idle)


def test_a_malformed_payload_is_not_paid_by_an_ended_job_either(new_market: NewMarket) -> None:
    market = new_market(**ALONE)
    cheat, _other = cancelled(market)
    held = cheat.computed(cheat.newest())
    with pytest.raises(Conflict):
        cheat.answer(held, bytes(len(held.payload)))  # other bytes than it commits to
    cheat.answer(cheat._put(held, payload=held.payload + b"\0"))
    assert market.replica(cheat).state == ReplicaState.REJECTED
    assert market.earned() == {}
    check_books(market)


def test_where_rounds_go_on_without_the_slow_or_others_vote_leases_end_with_the_job(new_market: NewMarket) -> None:
    for job in ({**ALONE, "min_tasks": 1}, {"tasks_per_round": 1}):
        market = new_market(**job)
        for _ in range(3):
            market.worker()
        market.gather()
        market.cancel()
        assert {replica.state for replica in market.replicas()} == {ReplicaState.NOT_NEEDED}
