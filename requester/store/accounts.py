"""Queries about the accounts of workers in jobs."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import bindparam, exists, select, update

from gradmarket.market.terms import Address
from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Account, Job
from gradmarket.requester.store.work import RowReader, Work


def workers_of(reader: RowReader, job_id: str) -> Sequence[Address]:
    return reader.session.scalars(select(Account.worker).where(Account.job_id == job_id)).all()


def accounts_of(reader: RowReader, job_id: str, workers: Iterable[Address]) -> Sequence[Account]:
    """Returns these workers' accounts in the job, as far as they have one."""
    return reader.session.scalars(_OF_JOB, {"job": job_id, "workers": list(workers)}).all()


_OF_JOB: Final = (
    select(Account).where(Account.job_id == bindparam("job"), among(Account.worker, "workers")).order_by(Account.worker)
)


def leave(work: Work, worker: Address) -> None:
    """Marks the worker as leaving in all jobs: nothing more is reserved for it."""
    work.connection().execute(_LEAVE, {"of": worker})


def stay(work: Work, workers: Sequence[Address]) -> None:
    """Marks workers that ask for work again as not leaving."""
    work.connection().execute(_STAY, {"workers": workers})


def any_covered(reader: RowReader, workers: Sequence[Address]) -> bool:
    """Whether one of the workers has money reserved in any job beyond what it earned there."""
    return bool(reader.session.scalar(_COVERED, {"workers": workers}))


_COVERED: Final = select(exists().where(among(Account.worker, "workers"), Account.reserved > Account.earned))
_LEAVE: Final = update(Account).where(Account.worker == bindparam("of")).values(leaving=True)
_STAY: Final = update(Account).where(among(Account.worker, "workers"), Account.leaving.is_(True)).values(leaving=False)


def stakes_of(reader: RowReader, worker: str) -> Sequence[tuple[str, int | None, int, str]]:
    """Returns where the worker has a stake at risk: job, the contract's job, units at risk, and the job's unit."""
    return [(job, number, units, unit) for job, number, units, unit in reader.session.execute(_STAKES, {"of": worker})]


_STAKES: Final = (
    select(Job.id, Job.chain_job, Account.at_risk, Job.unit)
    .join(Job, Job.id == Account.job_id)
    .where(Account.worker == bindparam("of"), Account.at_risk > 0)
    .order_by(Job.created_at)
)
