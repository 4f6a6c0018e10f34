"""Judges revealed ballots: the result is a quorum, another wave or no decision, by the rule in market.rules.voting."""

from collections.abc import Sequence

from sqlalchemy import exists, select

from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.moves.judging import advance
from gradmarket.requester.store.in_hand import claimed
from gradmarket.requester.store.tables import Replica, Task
from gradmarket.requester.store.work import RowReader

TOPIC = "judge"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    silent = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.COMMITTED)
    judgeable = select(Task.id).where(Task.state == TaskState.REVEALING, (Task.due_at <= now) | ~silent)
    return reader.session.scalars(judgeable.order_by(Task.due_at).limit(256)).all()


def run(context: Context, task_id: str) -> float | None:
    with context.begin() as work:
        hand = claimed(work, task_id)
        if hand is None:
            return context.settings.sweep_s
        advance(context, work, [hand])
    return None
