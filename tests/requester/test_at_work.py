"""What anybody is told of a task while workers are at it."""

from market_floor import Floor
from sqlalchemy import select

from gradmarket.market.terms import Hash
from gradmarket.requester.api.views.tasks import TaskEvidence, evidence
from gradmarket.requester.store.tables import Wave


def told(floor: Floor) -> TaskEvidence:
    with floor.reading() as session:
        waves = list(session.scalars(select(Wave)).all())
    return evidence(floor.task(), waves, floor.replicas(), False, Hash(bytes(32)), None)


def test_nobody_is_told_who_else_is_at_work_before_the_wave_is_closed(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Who saw that it is alone, or among its own, would cheat just then."""
    floor = new_floor()
    workers = [floor.worker() for _ in range(3)]
    floor.gather()
    floor.commit(*workers[:2])
    assert told(floor).replicas == []
    floor.commit(workers[2])
    assert {replica.worker for replica in told(floor).replicas} == {worker.address for worker in workers}
