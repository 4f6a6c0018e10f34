"""Locks the rows that a transaction decides by before it reads them, so that it runs as if it were alone.

All code locks in one order, or two transactions deadlock: draw -> job -> task -> worker -> account -> strike -> events.
The transaction that holds a task writes its replicas; the holder of the chain's lease writes chain rows. SQLite takes
one writer at a time, and ignores all of this. FOR NO KEY UPDATE allows references to the row meanwhile (foreign keys).
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Final, ParamSpec, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import defer
from sqlalchemy.orm.exc import StaleDataError

from requester.store.among import is_in_bound_list
from requester.store.session import Sessions, is_shared
from requester.store.tables import Base, Job, Task, Worker
from requester.store.work import Work

Row = TypeVar("Row", bound=Base)


def _populate_existing(statement: Select[Row]) -> Select[Row]:
    return statement.execution_options(populate_existing=True)


def lock_row(work: Work, table: type[Row], key: str) -> Row:
    """Returns the current row, locked for this transaction; raises NoResultFound where it is missing."""
    row: Row = work.session.scalars(_by_key(table), {"key": key}).one()
    return row


@cache
def _by_key(table: type[Row]) -> Select[Row]:
    """Returns the statement, cached: building one takes as long as executing it."""
    (column,) = table.__mapper__.primary_key
    return _populate_existing(select(table).where(column == bindparam("key")).with_for_update(key_share=True))


def in_order(tasks: Select[Task]) -> Select[Task]:
    """Returns the query for these tasks that locks them in the one common order."""
    ordered = tasks.order_by(Task.job_id, Task.round, Task.index, Task.attempt)
    return _populate_existing(ordered.with_for_update(key_share=True, of=Task))


def locked_tasks(work: Work, tasks: Select[Task]) -> Sequence[Task]:
    """Returns several tasks, locked in the one common order."""
    return work.session.scalars(in_order(tasks)).all()


def locked_workers(work: Work, addresses: Iterable[str]) -> Sequence[Worker]:
    """Returns several workers as they are now, locked in order of their addresses."""
    return work.session.scalars(LOCKED_WORKERS, {"workers": addresses}).all()


LOCKED_WORKERS: Final = _populate_existing(
    select(Worker)
    .where(is_in_bound_list(Worker.address, "workers"))
    .order_by(Worker.address)
    .with_for_update(key_share=True, of=Worker)
)


class LockedTasks:
    """A query for tasks of any jobs, which locks their jobs as `claimed_task` does, then them; it is built once."""

    def __init__(self, tasks: Select[Task], clause: str = "FOR NO KEY UPDATE OF tasks") -> None:
        ordered = tasks.order_by(Task.job_id, Task.round, Task.index, Task.attempt)
        both = ordered.join(Job, Job.id == Task.job_id).add_columns(Job).options(defer(Job.spec))
        shared = both.with_for_update(read=True, of=Job)  # the job's clause comes first, and so does its lock
        self._both = _populate_existing(shared.suffix_with(text(clause), dialect="postgresql"))

    def __call__(self, work: Work, **named: Iterable[str]) -> list[tuple[Task, Job]]:
        return [(task, job) for task, job in work.session.execute(self._both, named)]


_CLAIMED: Final = LockedTasks(
    select(Task).where(Task.id == bindparam("task")), "FOR NO KEY UPDATE OF tasks SKIP LOCKED"
)


def claimed_task(work: Work, task_id: str) -> tuple[Task, Job] | None:
    """Locks the task, and its job for others that would change it; None where another transaction has the task."""
    return next(iter(_CLAIMED(work, task=task_id)), None)


def held_tasks(work: Work, tasks: Select[Task]) -> Sequence[Task]:
    """Returns the selected tasks of any jobs; locks them, and their jobs as `claimed_task` does."""
    return [task for task, _job in LockedTasks(tasks)(work)]


@contextmanager
def hold_named_lock(sessions: Sessions, name: str) -> Iterator[bool]:
    """Yields whether this process got the lock named `what`, which it then holds until the end of the block, or its
    own.

    For long work outside of transactions. With SQLite the service has one process, and one thread a stage; those of a
    stage with SPARE take turns (requester.merge_turns).
    """
    engine = sessions.kw["bind"]
    if not is_shared(engine):
        yield True
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        mine = bool(connection.scalar(select(func.pg_try_advisory_lock(hash_lock_name(name)))))
        try:
            yield mine
        finally:
            if mine:
                connection.execute(select(func.pg_advisory_unlock(hash_lock_name(name))))


def hash_lock_name(name: str | ColumnElement[str]) -> ColumnElement[int]:
    return func.hashtextextended(name, 0)


P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 6
CLASHES: Final = {"40001", "40P01", "23505"}
"""PostgreSQL: serialization failure, deadlock, and a row that another transaction inserted meanwhile."""


def retry_on_conflict(act: Callable[P, T]) -> Callable[P, T]:
    """Decorates `act` to run again after a clash with another transaction; a failed `act` must leave nothing behind."""

    @wraps(act)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(1, ATTEMPTS):
            try:
                return act(*args, **kwargs)
            except (DBAPIError, StaleDataError) as error:
                if not is_clash(error):
                    raise
                time.sleep(random.uniform(0.0, 0.01 * 2**attempt))
        return act(*args, **kwargs)

    return again


def is_clash(error: DBAPIError | StaleDataError) -> bool:
    """Returns whether the failed transaction may succeed when it is repeated."""
    return isinstance(error, StaleDataError) or getattr(error.orig, "sqlstate", None) in CLASHES
