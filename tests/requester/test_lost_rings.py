"""A ring that is lost costs a waiting poll a few sweeps, and an idle one nothing."""

import asyncio
from dataclasses import replace

import pytest

from gradmarket.market.terms import ReplicaState
from requester.api import worker_routes
from requester.exchange import outbox
from requester.features.many_machines.database_notifier import address_of
from requester.notifier import rung_within, worker_topic
from requester.stages import assign
from tests.databases import BOTH
from tests.requester.market_workers import SimWorker

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


@pytest.mark.databases("sqlite")  # PostgreSQL's bell wakes all as it connects
def test_a_worker_with_pending_messages_is_notified_again_and_no_other(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"sweep_s": 0.01}, **ALONE)
    drawn = market.worker()
    drawn.request_work()
    idle = market.worker()
    idle.request_work()

    async def notified() -> tuple[bool, bool]:
        notifier = market.context.notifier
        with (
            notifier.listen_async([worker_topic(drawn.address)]) as one,
            notifier.listen_async([worker_topic(idle.address)]) as two,
        ):
            looking = asyncio.create_task(worker_routes.look_out(market.context))
            try:
                return await rung_within(one, 30), await rung_within(two, 0.2)
            finally:
                looking.cancel()

    assert asyncio.run(notified()) == (True, False)


@BOTH
def test_a_worker_that_confirmed_the_end_has_no_pending_message(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(**ALONE)
    worker = market.worker()
    worker.request_work()
    assert outbox.list_addressed_workers(market.context) == [worker.address]
    market.play()
    worker.send_poll()
    assert outbox.list_addressed_workers(market.context) == []


@BOTH
def test_a_worker_killed_during_its_confirmation_gets_the_verdict_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(**ALONE)
    worker = market.worker()
    worker.turn()
    on_disk = dict(worker.held)
    market.play()
    worker.send_poll()
    assert outbox.list_addressed_workers(market.context) == []
    worker.held = on_disk
    assert [held.state for held in on_disk.values()] == [ReplicaState.LEASED]
    worker.request_work()
    assert [held.state for held in worker.held.values()] == [ReplicaState.PAYABLE]
    worker.send_poll()
    assert outbox.list_addressed_workers(market.context) == []


@BOTH
def test_a_worker_with_a_foreign_or_absent_replica_gets_not_found(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(**ALONE)
    worker = market.worker()
    worker.request_work()
    other = market.worker()
    (replica,) = worker.held
    other.held = {replica: worker.held[replica]}
    assert [(refusal.replica, refusal.code) for refusal in other.send_poll()] == [(replica, "not_found")]
    assert worker.send_poll() == ()
    other.held[replica] = replace(other.held[replica], state=ReplicaState.REJECTED)
    assert other.send_poll() == ()


@pytest.mark.databases("sqlite")  # PostgreSQL's bell wakes all as it connects
def test_repeated_polls_without_a_reservation_start_no_assignment(new_market) -> None:  # type: ignore[no-untyped-def]
    """An attempt to assign costs twenty polls; strangers would have one made for each of theirs."""
    market = new_market()
    poor, drawable = market.worker(reserved=0), market.worker()
    market.driven = True
    with market.context.notifier.listen([assign.TOPIC]) as notified:

        def notifies(worker: SimWorker) -> bool:
            notified.clear()
            worker.send_poll()
            return notified.is_set()

        assert [notifies(poor), notifies(poor)] == [True, False]
        assert [notifies(drawable), notifies(drawable)] == [True, True]
        market.clock.now += 60
        assert notifies(poor), "it was away"


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(("asked", "again"), [(1, False), (2, True)])
def test_a_draw_that_leaves_tasks_asks_for_another_while_a_worker_is_free(
    new_market,  # type: ignore[no-untyped-def]
    asked: int,
    again: bool,
) -> None:
    market = new_market(tasks_per_round=4, replication={"name": "fixed", "replicas": 2, "max_replicas": 2})
    for capacity in (1, asked):
        market.worker().send_poll(capacity=capacity)
    with market.context.notifier.listen([assign.TOPIC]) as notified:
        assert assign.run(market.context, market.job) is None
        assert notified.is_set() == again
    assert len(market.replicas()) == 2


def test_listening_uses_the_database_address_s_password() -> None:
    """SQLAlchemy writes stars in the password's place unless it is asked not to."""
    written = "postgresql+psycopg://market:p%40ss@db.example:5433/rows"
    assert address_of(written) == "postgresql://market:p%40ss@db.example:5433/rows"
