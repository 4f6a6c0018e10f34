"""Workers that come and go all the time: the job ends with the same bits, and nobody honest is rejected.

Where one replica decides, no honest answer is unpaid. Where several vote, one is whose fellow voters are gone before
they reveal or upload, more of them than the job may replace: its attempt is inconclusive, and the task begins anew.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gradmarket.market.terms import Digest, JobState, ReplicaState
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.test_overlapped_rounds import final_bytes

NewMarket = Callable[..., MarketFixture]
WORKERS, REPLACED, TURNS = 6, 2, 8
TURN_S = 4.0
"""Seconds of a turn of everybody: a third of the workers is replaced each half minute; leases last 20 s."""
VOTED = {"name": "fixed", "replicas": 3, "max_replicas": 5}
ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
SPEC: dict[str, Any] = {"rounds": 4, "tasks_per_round": 3}
UNPAID = {ReplicaState.REJECTED, ReplicaState.AGREE, ReplicaState.REVEALED, ReplicaState.INCONCLUSIVE}


def churned(market: MarketFixture, chance: Random) -> dict[str, int]:
    """Plays until the job is over; returns for each worker that came later how many rounds were done then."""
    joined = {}
    for turn in range(400):
        if market.state() != JobState.RUNNING:
            break
        if turn % TURNS == TURNS - 1:
            for leaver in chance.sample(market.workers, REPLACED):
                market.workers.remove(leaver)
                joined[market.worker().address] = sum(row.updated is not None for row in market.rounds())
        for worker in chance.sample(market.workers, len(market.workers)):
            act(worker, chance)
        market.clock.now += TURN_S
        market.drive()
    for _ in range(8):
        market.lapse(21)
        market.take_turns()
    return joined


def act(worker: SimWorker, chance: Random) -> None:
    """A turn, or the part of one after which it may be gone."""
    if chance.random() < 0.8:
        worker.turn()
    else:
        worker.send_poll(commitments=worker.commitments())
        worker.market.drive()


@FULL
@pytest.mark.parametrize(("overlap", "replication"), [(0, VOTED), (1, ALONE)], ids=["voted", "alone, overlapping"])
def test_a_third_of_the_workers_is_replaced_every_half_minute(
    new_market: NewMarket, overlap: int, replication: dict[str, Any]
) -> None:
    spec = SPEC | {"overlap": overlap, "replication": replication}
    market = new_market(settings={"max_attempts": 10**6}, **spec)
    for _ in range(WORKERS):
        market.worker()
    joined = churned(market, Random(overlap))
    assert market.state() == JobState.FINISHED, market.why_waiting()
    undisturbed = final_bytes(market, market.workers[0])
    assert market.context.blobs.read(Digest(market.final_parameters())) == undisturbed
    assert len(joined) >= REPLACED
    check_books(market)
    unpaid = {replica.state for replica in market.replicas()} & UNPAID
    assert unpaid <= ({ReplicaState.INCONCLUSIVE} if replication == VOTED else set())
