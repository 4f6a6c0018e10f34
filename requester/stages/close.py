"""A wave closes when all in it have committed, or at its deadline: its secret opens over the set of commitments."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gradmarket.market.terms import ReplicaState
from gradmarket.requester.context import Context
from gradmarket.requester.moves.waves import GATHERING, advance
from gradmarket.requester.store.locks import claimed_task
from gradmarket.requester.store.tables import Replica, Task

TOPIC = "close"


def ready(session: Session, now: float) -> Sequence[str]:
    """Gathering tasks with a commitment whose deadline has come, or whose wave is complete."""
    committed = (
        select(func.count())
        .where(Replica.task_id == Task.id, Replica.wave == Task.wave, Replica.state == ReplicaState.COMMITTED)
        .scalar_subquery()
    )
    due = (Task.due_at <= now) | (committed >= Task.wave_size)
    wanted = select(Task.id).where(Task.state.in_(GATHERING), Task.due_at.is_not(None), due)
    return session.scalars(wanted.order_by(Task.due_at).limit(256)).all()


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as session:
        task = claimed_task(session, task_id)
        if task is None:
            return context.settings.sweep_s
        advance(context, session, task)
    return None
