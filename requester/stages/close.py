"""Closes waves in which all replicas have committed or whose deadline has come, and opens their secrets."""

from collections.abc import Sequence

from sqlalchemy import func, select

from gradmarket.market.terms import ReplicaState
from gradmarket.requester.context import Context
from gradmarket.requester.moves.waves import GATHERING, advance
from gradmarket.requester.store.in_hand import claimed
from gradmarket.requester.store.tables import Replica, Task
from gradmarket.requester.store.work import RowReader

TOPIC = "close"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that take commitments, have one, and whose deadline has come or whose wave is complete."""
    committed = (
        select(func.count())
        .where(Replica.task_id == Task.id, Replica.wave == Task.wave, Replica.state == ReplicaState.COMMITTED)
        .scalar_subquery()
    )
    due = (Task.due_at <= now) | (committed >= Task.wave_size)
    closable = select(Task.id).where(Task.state.in_(GATHERING), Task.due_at.is_not(None), due)
    return reader.session.scalars(closable.order_by(Task.due_at).limit(256)).all()


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        hand = claimed(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        advance(context, work, hand)
    return None
