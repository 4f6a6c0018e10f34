"""Locks the rows that a transaction decides by before it reads them, so that it runs as if it were alone.

All code locks in one order, or two transactions deadlock: draw -> job -> task -> worker -> account -> events. A replica
is written by whoever holds its task; chain rows by whoever holds the chain's lease. SQLite takes one writer at a time,
and ignores all of this. FOR NO KEY UPDATE lets others refer to the row meanwhile (foreign keys).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, func, select

from gradmarket.requester.store.among import among
from gradmarket.requester.store.session import Sessions, is_shared
from gradmarket.requester.store.tables import Base, Job, Replica, Task, Worker
from gradmarket.requester.store.work import Work

Row = TypeVar("Row", bound=Base)


def _fresh(statement: Select[Row]) -> Select[Row]:
    return statement.execution_options(populate_existing=True)


def locked(work: Work, table: type[Row], key: str) -> Row:
    """Returns the current row, locked for this transaction; raises NoResultFound where there is none."""
    row: Row = work.session.scalars(_by_key(table), {"key": key}).one()
    return row


@cache
def _by_key(table: type[Row]) -> Select[Row]:
    """Returns the statement, cached: building one takes as long as executing it."""
    (column,) = table.__mapper__.primary_key
    return _fresh(select(table).where(column == bindparam("key")).with_for_update(key_share=True))


def locked_task(work: Work, task_id: str) -> Task:
    """Returns the task, locked; its job and rounds cannot change meanwhile, though others may share the job's lock."""
    locked_job(work, task_id)
    return locked(work, Task, task_id)


def locked_job(work: Work, task_id: str) -> Job:
    """Returns the job of a task under a shared lock: others may read it, nobody may change it."""
    return work.session.scalars(_job_of_task(), {"task": task_id}).one()


@cache
def _job_of_task() -> Select[Job]:
    its_job = select(Task.job_id).where(Task.id == bindparam("task")).scalar_subquery()
    return _fresh(select(Job).where(Job.id == its_job).with_for_update(read=True))


def claimed_task(work: Work, task_id: str) -> Task | None:
    """Like `locked_task`, for callers that go through many tasks: None where another transaction has this one."""
    locked_job(work, task_id)
    query = select(Task).where(Task.id == task_id)
    return work.session.scalars(_fresh(query.with_for_update(key_share=True, skip_locked=True))).one_or_none()


def locked_tasks(work: Work, tasks: Select[Task]) -> Sequence[Task]:
    """Returns several tasks, locked in the one common order."""
    ordered = tasks.order_by(Task.job_id, Task.round, Task.index, Task.attempt)
    return work.session.scalars(_fresh(ordered.with_for_update(key_share=True, of=Task))).all()


def locked_workers(work: Work, addresses: Iterable[str]) -> Sequence[Worker]:
    """Returns several workers as they are now, locked in order of their addresses."""
    return work.session.scalars(_WORKERS, {"workers": addresses}).all()


_WORKERS: Final = _fresh(
    select(Worker).where(among(Worker.address, "workers")).order_by(Worker.address).with_for_update(key_share=True)
)


class _Held:
    """A query for tasks of any jobs, which locks as `locked_task` does; its statements are built once."""

    def __init__(self, tasks: Select[Task]) -> None:
        its_jobs = select(Job).where(Job.id.in_(tasks.with_only_columns(Task.job_id))).order_by(Job.id)
        self._jobs = _fresh(its_jobs.with_for_update(read=True))
        ordered = tasks.order_by(Task.job_id, Task.round, Task.index, Task.attempt)
        self._tasks = _fresh(ordered.with_for_update(key_share=True, of=Task))

    def __call__(self, work: Work, **named: Iterable[str]) -> Sequence[Task]:
        if is_shared(work.session.get_bind()):
            work.session.scalars(self._jobs, named).all()
        return work.session.scalars(self._tasks, named).all()


_OWN: Final = select(Replica.task_id).where(among(Replica.id, "replicas"), among(Replica.worker, "workers"))
_OF_REPLICAS: Final = _Held(select(Task).where(Task.id.in_(_OWN)))
_NAMED: Final = _Held(select(Task).where(among(Task.id, "tasks")))


def tasks_of(work: Work, workers: Iterable[str], replicas: Collection[str]) -> Sequence[Task]:
    """Returns the tasks of these replicas of the workers; locks them and their jobs as `locked_task` does."""
    return _OF_REPLICAS(work, workers=workers, replicas=replicas) if replicas else ()


def tasks_named(work: Work, tasks: Iterable[str]) -> Sequence[Task]:
    """Returns tasks by their ids; locks them and their jobs as `locked_task` does."""
    return _NAMED(work, tasks=tasks)


def held_tasks(work: Work, tasks: Select[Task]) -> Sequence[Task]:
    """Returns the selected tasks of any jobs; locks them and their jobs as `locked_task` does."""
    return _Held(tasks)(work)


@contextmanager
def alone(sessions: Sessions, what: str) -> Iterator[bool]:
    """Yields whether nobody else does `what`: then nobody will until the end of the block, or of this process.

    For long work outside of transactions. Where SQLite is the database there is one process, and one thread a stage.
    """
    engine = sessions.kw["bind"]
    if not is_shared(engine):
        yield True
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        mine = bool(connection.scalar(select(func.pg_try_advisory_lock(_number(what)))))
        try:
            yield mine
        finally:
            if mine:
                connection.execute(select(func.pg_advisory_unlock(_number(what))))


def _number(what: str) -> ColumnElement[int]:
    return func.hashtextextended(what, 0)
