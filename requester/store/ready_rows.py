"""The rows that each stage finds ready: at most 256.

Rows that leave a query once they are moved come the oldest first. Other rows may stay ready and unmoved for long: each
query takes another part of them, so that none starves the rest.
"""

from collections.abc import Sequence
from secrets import randbelow
from typing import Final

from sqlalchemy import exists, func, select
from sqlalchemy.orm import aliased

from gradmarket.market.terms import JobState, ReplicaState, RoundState, TaskState
from requester.store import workers
from requester.store.among import NOW
from requester.store.tables import Job, Replica, Round, Task
from requester.store.work import RowReader

MOST: Final = 256


def limited(ids: Sequence[str]) -> Sequence[str]:
    """Returns at most MOST of the ids in their order, as in a ring, from a random place on."""
    if len(ids) <= MOST:
        return ids
    start = randbelow(len(ids))
    return [*ids[start : start + MOST], *ids[: max(0, start + MOST - len(ids))]]


GATHERING: Final = (TaskState.OPEN, TaskState.COMMITTING)
BUSY: Final = (ReplicaState.LEASED, ReplicaState.COMMITTED)


def list_drafts(reader: RowReader) -> Sequence[str]:
    """Returns drafts, except those that continue a job which goes on, or whose last state is not stored yet."""
    return reader.session.scalars(_DRAFTS).all()


_EARLIER: Final = aliased(Job)
_LAST_ROUND: Final = (
    select(func.max(Round.number))
    .where(Round.job_id == _EARLIER.id, Round.state == RoundState.CLOSED)
    .correlate(_EARLIER)
    .scalar_subquery()
)
_STORED: Final = exists().where(
    Round.job_id == _EARLIER.id, Round.number == _LAST_ROUND, func.coalesce(Round.optimizer_state, "") != ""
)
_GOES_ON: Final = _EARLIER.ended_at.is_(None) | (
    (_EARLIER.state == JobState.FINISHED) & _EARLIER.replay_from.is_not(None) & ~_STORED
)
_DRAFTS: Final = (
    select(Job.id)
    .where(Job.state == JobState.DRAFT, ~exists().where(_EARLIER.id == Job.continues, _GOES_ON))
    .order_by(Job.created_at)
    .limit(MOST)
)
"""A Beginning's find_start decides by the same conditions."""


def list_assignable_jobs(reader: RowReader, now: float) -> Sequence[str]:
    """Returns running jobs with an open task, if any worker asks for work."""
    return limited(reader.session.scalars(_ASSIGNABLE, {"now": now}).all())


_ASSIGNABLE: Final = select(Job.id).where(
    Job.state == JobState.RUNNING,
    exists().where(Task.job_id == Job.id, Task.state == TaskState.OPEN),
    exists().where(workers.ASKS),
)


def list_closable_tasks(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that take commitments, have one, and whose deadline has come or whose wave is complete."""
    return reader.session.scalars(_CLOSABLE, {"now": now}).all()


_COMMITTED: Final = (
    select(func.count())
    .where(Replica.task_id == Task.id, Replica.wave == Task.wave, Replica.state == ReplicaState.COMMITTED)
    .scalar_subquery()
)
_CLOSABLE: Final = (
    select(Task.id)
    .where(Task.state.in_(GATHERING), Task.due_at.is_not(None), (Task.due_at <= NOW) | (Task.wave_size <= _COMMITTED))
    .order_by(Task.due_at)
    .limit(MOST)
)


def list_judgeable_tasks(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks in which all replicas have revealed, or whose deadline to reveal has come."""
    return reader.session.scalars(_JUDGEABLE, {"now": now}).all()


_SILENT: Final = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.COMMITTED)
_JUDGEABLE: Final = (
    select(Task.id)
    .where(Task.state == TaskState.REVEALING, (Task.due_at <= NOW) | ~_SILENT)
    .order_by(Task.due_at)
    .limit(MOST)
)


def list_lapsed_tasks(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that have a lapsed lease, whose upload is overdue, or that wait for workers in vain."""
    return reader.session.scalars(_LAPSED, {"now": now}).all()


_BUSY: Final = exists().where(Replica.task_id == Task.id, Replica.state.in_(BUSY))
_STRANDED: Final = select(Task.id).where(Task.state == TaskState.OPEN, Task.patience_until < NOW, ~_BUSY)
"""Open tasks that waited long enough for another worker and have no replica leased or committed."""
_OVERDUE: Final = select(Task.id).where(Task.state == TaskState.UPLOADING, Task.due_at < NOW)
_LEASES: Final = select(Replica.task_id).where(Replica.state == ReplicaState.LEASED, Replica.lease_until < NOW)
_LAPSED: Final = _LEASES.union(_OVERDUE, _STRANDED).limit(MOST)
