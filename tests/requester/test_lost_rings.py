"""A ring that is lost costs a waiting poll a few sweeps, and an idle one nothing."""

import asyncio
from dataclasses import replace

import pytest

from gradmarket.market.terms import ReplicaState
from gradmarket.requester.api import work
from gradmarket.requester.bell import rung_within, worker_topic
from gradmarket.requester.stages import news

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)  # PostgreSQL's bell wakes all as it connects
def test_who_has_something_to_hear_is_rung_for_again_and_nobody_else(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(settings={"sweep_s": 0.01}, **ALONE)
    drawn = floor.worker()
    drawn.ask()
    idle = floor.worker()
    idle.ask()

    async def rung() -> tuple[bool, bool]:
        bell = floor.context.bell
        with (
            bell.listen_async([worker_topic(drawn.address)]) as one,
            bell.listen_async([worker_topic(idle.address)]) as two,
        ):
            looking = asyncio.create_task(work.look_out(floor.context))
            try:
                return await rung_within(one, 30), await rung_within(two, 0.2)
            finally:
                looking.cancel()

    assert asyncio.run(rung()) == (True, False)


def test_who_has_heard_the_end_has_nothing_more_to_hear(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(**ALONE)
    worker = floor.worker()
    worker.ask()
    assert news.addressed(floor.context) == [worker.address]
    floor.play()
    worker.say()
    assert news.addressed(floor.context) == []


def test_who_was_killed_while_it_said_that_it_has_heard_is_told_again(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(**ALONE)
    worker = floor.worker()
    worker.turn()
    on_disk = dict(worker.held)
    floor.play()
    worker.say()
    assert news.addressed(floor.context) == []
    worker.held = on_disk
    assert [held.state for held in on_disk.values()] == [ReplicaState.LEASED]
    worker.ask()
    assert [held.state for held in worker.held.values()] == [ReplicaState.PAYABLE]
    worker.say()
    assert news.addressed(floor.context) == []


def test_who_holds_a_replica_that_is_not_its_own_or_is_gone_is_told_so(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(**ALONE)
    worker = floor.worker()
    worker.ask()
    other = floor.worker()
    (replica,) = worker.held
    other.held = {replica: worker.held[replica]}
    assert [(refusal.replica, refusal.code) for refusal in other.say()] == [(replica, "not_found")]
    assert worker.say() == ()
    other.held[replica] = replace(other.held[replica], state=ReplicaState.REJECTED)
    assert other.say() == ()
