"""The public view of a task while workers compute it."""

from sqlalchemy import select

from gradmarket.market.features.records import TaskEvidence
from gradmarket.market.terms import Hash
from requester.features.records.task_views import build_task_evidence
from requester.store.tables import Wave
from tests.requester.market_fixture import MarketFixture


def build_evidence(market: MarketFixture) -> TaskEvidence:
    with market.reading() as reader:
        waves = list(reader.session.scalars(select(Wave)).all())
    return build_task_evidence(market.task(), waves, market.replicas(), False, Hash(bytes(32)), (None, False), {})


def test_a_task_s_workers_are_published_only_once_the_wave_is_closed(new_market) -> None:  # type: ignore[no-untyped-def]
    """A worker that saw itself alone, or among its own, would cheat just then."""
    market = new_market()
    workers = [market.worker() for _ in range(3)]
    market.gather()
    market.commit(*workers[:2])
    assert build_evidence(market).replicas == []
    market.commit(workers[2])
    assert {replica.worker for replica in build_evidence(market).replicas} == {worker.address for worker in workers}
