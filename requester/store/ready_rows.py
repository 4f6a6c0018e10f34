"""What each stage finds ready. Every query is limited, and takes the oldest rows first."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Select, exists, func, select

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.store import workers
from gradmarket.requester.store.tables import Job, Replica, Task
from gradmarket.requester.store.work import RowReader

MOST: Final = 256
GATHERING: Final = (TaskState.OPEN, TaskState.COMMITTING)
BUSY: Final = (ReplicaState.LEASED, ReplicaState.COMMITTED)


def drafts(reader: RowReader) -> Sequence[str]:
    return reader.session.scalars(select(Job.id).where(Job.state == JobState.DRAFT).order_by(Job.created_at)).all()


def assignable(reader: RowReader, now: float) -> Sequence[str]:
    """Returns running jobs with an open task, if any worker asks for work."""
    asks = exists().where(workers.asks(now))
    wants = exists().where(Task.job_id == Job.id, Task.state == TaskState.OPEN)
    return reader.session.scalars(select(Job.id).where(Job.state == JobState.RUNNING, wants, asks)).all()


def closable(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that take commitments, have one, and whose deadline has come or whose wave is complete."""
    committed = (
        select(func.count())
        .where(Replica.task_id == Task.id, Replica.wave == Task.wave, Replica.state == ReplicaState.COMMITTED)
        .scalar_subquery()
    )
    due = (Task.due_at <= now) | (committed >= Task.wave_size)
    tasks = select(Task.id).where(Task.state.in_(GATHERING), Task.due_at.is_not(None), due)
    return reader.session.scalars(tasks.order_by(Task.due_at).limit(MOST)).all()


def judgeable(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks in which all have revealed, or whose deadline to reveal has come."""
    silent = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.COMMITTED)
    tasks = select(Task.id).where(Task.state == TaskState.REVEALING, (Task.due_at <= now) | ~silent)
    return reader.session.scalars(tasks.order_by(Task.due_at).limit(MOST)).all()


def lapsed(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that have a lapsed lease, whose upload is overdue, or that wait for workers in vain."""
    leases = select(Replica.task_id).where(Replica.state == ReplicaState.LEASED, Replica.lease_until < now)
    overdue = select(Task.id).where(Task.state == TaskState.UPLOADING, Task.due_at < now)
    return reader.session.scalars(leases.union(overdue, _stranded(now)).limit(MOST)).all()


def _stranded(now: float) -> Select[str]:
    """Selects open tasks that waited long enough for another worker and have no replica leased or committed."""
    busy = exists().where(Replica.task_id == Task.id, Replica.state.in_(BUSY))
    return select(Task.id).where(Task.state == TaskState.OPEN, Task.patience_until < now, ~busy)
