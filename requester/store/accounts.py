"""Queries about the accounts of workers in jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, exists, select, update

from gradmarket.market.terms import Address, JobState, TaskState
from requester.store.among import is_in_bound_list
from requester.store.locks import LOCKED_WORKERS
from requester.store.tables import Account, Job, Task, Worker
from requester.store.work import RowReader, Work


def workers_of(reader: RowReader, job_id: str) -> Sequence[Address]:
    return reader.session.scalars(select(Account.worker).where(Account.job_id == job_id)).all()


def accounts_of(reader: RowReader, job_id: str, workers: Iterable[Address]) -> Sequence[Account]:
    """Returns these workers' accounts in the job, where they exist."""
    return reader.session.scalars(_OF_JOB, {"job": job_id, "workers": list(workers)}).all()


_OF_JOB: Final = (
    select(Account)
    .where(Account.job_id == bindparam("job"), is_in_bound_list(Account.worker, "workers"))
    .order_by(Account.worker)
)


def mark_leaving(work: Work, workers: Sequence[Address], leaving: bool) -> None:
    """Marks workers in all jobs as leaving, so that nothing more is reserved for them, or as staying."""
    work.connection().execute(_MARK, {"workers": workers, "mark": leaving})


def lock_with_money(work: Work, workers: Iterable[Address]) -> Mapping[Address, Any]:
    """Returns rows by address: the `Worker`, locked like locks.locked_workers, and facts of this moment: whether a job
    counts it as `leaving`, has money reserved for it beyond its earnings (`covered`), and whether a task is `open`.
    """
    return {row.Worker.address: row for row in work.session.execute(_WITH_MONEY, {"workers": workers})}


_ITS_OWN: Final = Account.worker == Worker.address
_OPEN: Final = exists().where(Task.state == TaskState.OPEN, Job.id == Task.job_id, Job.state == JobState.RUNNING)
_WITH_MONEY: Final = LOCKED_WORKERS.add_columns(
    exists().where(_ITS_OWN, Account.leaving.is_(True)).label("leaving"),
    exists().where(_ITS_OWN, Account.reserved > Account.earned).label("covered"),
    select(_OPEN).scalar_subquery().label("open"),
)
_MARK: Final = (
    update(Account)
    .where(is_in_bound_list(Account.worker, "workers"), Account.leaving != bindparam("mark"))
    .values(leaving=bindparam("mark"))
)
