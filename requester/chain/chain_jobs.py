"""Queries about jobs with money on-chain, and events that are recorded once for each job."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import exists, func, or_, select

from gradmarket.market.terms import BatchState, JobState, Units
from requester.chain.chain_context import UNDER_WAY, ChainContext, TransactionKind, TransactionState
from requester.store.review import review_of
from requester.store.tables import Account, Batch, Earned, Job, JobEvent, Transaction
from requester.store.work import RowReader, record_event

OPENING: Final = exists().where(
    Transaction.job_id == Job.id, Transaction.kind == TransactionKind.OPEN, Transaction.state.in_(UNDER_WAY)
)
"""True for a job whose opening is not mined yet, or no longer: the contract does not know the job."""

UNBATCHED: Final = (Earned.batch_id.is_(None), Earned.revoked.is_(False), Earned.waits.is_(False))
"""True for a gradient that a batch must still record; gradients revoked by an audit are in none."""


def list_running_chain_jobs(reader: RowReader) -> Sequence[Job]:
    """Returns the running jobs that reserve money on-chain."""
    return reader.session.scalars(_RUNNING).all()


def with_money(reader: RowReader) -> Sequence[Job]:
    """Returns jobs with work left: the contract holds their money, or a gradient is not settled."""
    return reader.session.scalars(_WITH_MONEY).all()


_RUNNING: Final = select(Job).where(Job.state == JobState.RUNNING, Job.chain_job.is_not(None), ~OPENING)
_WITHDRAWN: Final = (
    select(func.coalesce(func.sum(Account.withdrawn), 0)).where(Account.job_id == Job.id).scalar_subquery()
)
_UNFINISHED: Final = or_(
    Job.deposited - Job.refunded > _WITHDRAWN,
    exists().where(Earned.job_id == Job.id, *UNBATCHED),
    exists().where(Batch.job_id == Job.id, Batch.state != BatchState.SETTLED),
)
_WITH_MONEY: Final = select(Job).where(Job.chain_job.is_not(None), ~OPENING, _UNFINISHED).order_by(Job.created_at)


def opened_in(reader: RowReader, job_id: str) -> int | None:
    """Returns the block of the job's opening, or None where the database does not know it."""
    mined = (Transaction.kind == TransactionKind.OPEN, Transaction.state == TransactionState.MINED)
    return reader.session.scalar(select(func.min(Transaction.block)).where(Transaction.job_id == job_id, *mined))


def compute_kept_back(chain: ChainContext, job: Job) -> Units:
    """Returns the free money of the job that stays in the escrow, for pay that audits awarded or may award."""
    uncovered = select(func.coalesce(func.sum(Account.earned - Account.reserved), 0))
    with chain.reading() as reader:
        kept = review_of(reader).sum_awardable_units(reader, job.id)
        if not is_job_expired(job, chain.clock()):
            owed = uncovered.where(Account.job_id == job.id, Account.earned > Account.reserved)
            kept += int(reader.session.scalar(owed) or 0)
    return Units(kept)


def is_job_expired(job: Job, now: float) -> bool:
    """Whether the job has expired, so that nothing more can be reserved."""
    return job.expiry is not None and now > job.expiry


def tell_once(chain: ChainContext, job_id: str, kind: str, **body: Any) -> None:
    """Records an event of this kind unless the job already has one."""
    with chain.reading() as reader:
        event_id = reader.session.scalar(
            select(JobEvent.id).where(JobEvent.job_id == job_id, JobEvent.kind == kind).limit(1)
        )
    if event_id is None:
        with chain.begin() as work:
            record_event(work, job_id, kind, chain.clock(), **body)
