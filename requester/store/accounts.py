"""Queries about the accounts of workers in jobs."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import bindparam, exists, select, update

from gradmarket.market.terms import Address, JobState, TaskState
from requester.store.among import is_in_bound_list
from requester.store.tables import Account, Job, Task
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


def mark_leaving(work: Work, worker: Address) -> None:
    """Marks the worker as leaving in all jobs: nothing more is reserved for it."""
    work.connection().execute(_LEAVE, {"of": worker})


def mark_staying(work: Work, workers: Sequence[Address]) -> bool:
    """Marks workers that ask for work again as not leaving; returns whether a draw may find something for them.

    One of them must have money reserved in any job beyond its earnings there. Unless other transactions open tasks
    meanwhile, a task must be open, too.
    """
    leaving, covered, open_ = work.session.execute(_ASKING, {"workers": workers}).one()
    if leaving:
        work.connection().execute(_STAY, {"workers": workers})
    return bool(covered and (open_ or work.shared))


_THEIRS: Final = is_in_bound_list(Account.worker, "workers")
_ASKING: Final = select(
    exists().where(_THEIRS, Account.leaving.is_(True)),
    exists().where(_THEIRS, Account.reserved > Account.earned),
    exists().where(Task.state == TaskState.OPEN, Job.id == Task.job_id, Job.state == JobState.RUNNING),
)
_LEAVE: Final = update(Account).where(Account.worker == bindparam("of")).values(leaving=True)
_STAY: Final = update(Account).where(_THEIRS, Account.leaving.is_(True)).values(leaving=False)
