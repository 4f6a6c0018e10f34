"""Jobs whose money is on-chain, and what is told of it."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from gradmarket.market.terms import BatchState, JobState
from gradmarket.requester.chain.chain_context import UNDER_WAY, ChainContext, TransactionKind, TransactionState
from gradmarket.requester.store import audits
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.tables import Account, Batch, Earned, Job, JobEvent, Transaction

OPENING: Final = exists().where(
    Transaction.job_id == Job.id, Transaction.kind == TransactionKind.OPEN, Transaction.state.in_(UNDER_WAY)
)
"""Of a job whose opening is not mined, or no longer: the contract does not know it yet."""

UNBATCHED: Final = (Earned.batch_id.is_(None), Earned.revoked.is_(False))
"""Of a gradient that a batch is to record; what an audit took back is in none."""


def running(session: Session) -> Sequence[Job]:
    """Jobs that reserve."""
    statement = select(Job).where(Job.state == JobState.RUNNING, Job.chain_job.is_not(None), ~OPENING)
    return session.scalars(statement).all()


def with_money(session: Session) -> Sequence[Job]:
    """Jobs for which something may be left to do: the contract holds money of theirs, or a record is not settled."""
    withdrawn = select(func.coalesce(func.sum(Account.withdrawn), 0)).where(Account.job_id == Job.id).scalar_subquery()
    holds = Job.deposited - Job.refunded > withdrawn
    unbatched = exists().where(Earned.job_id == Job.id, *UNBATCHED)
    unsettled = exists().where(Batch.job_id == Job.id, Batch.state != BatchState.SETTLED)
    statement = select(Job).where(Job.chain_job.is_not(None), ~OPENING, or_(holds, unbatched, unsettled))
    return session.scalars(statement.order_by(Job.created_at)).all()


def opened_in(session: Session, job_id: str) -> int | None:
    """The block of the job's opening, where the books know it."""
    mined = (Transaction.kind == TransactionKind.OPEN, Transaction.state == TransactionState.MINED)
    return session.scalar(select(func.min(Transaction.block)).where(Transaction.job_id == job_id, *mined))


def kept_back(chain: ChainContext, job: Job) -> bool:
    """Whether what is free stays in the escrow for now: an audit may have somebody paid from it, or one had."""
    with chain.reading() as session:
        if audits.earliest(session, job.id) is not None:
            return True
        uncovered = exists().where(Account.job_id == job.id, Account.earned > Account.reserved)
        return not expired(job, chain.clock()) and bool(session.scalar(select(uncovered)))


def expired(job: Job, now: float) -> bool:
    """Whether nothing more can be reserved."""
    return job.expiry is not None and now > job.expiry


def tell_once(chain: ChainContext, job_id: str, kind: str, **body: Any) -> None:
    """An event of a kind that is worth telling once in a job's life."""
    with chain.reading() as session:
        said = session.scalar(select(JobEvent.id).where(JobEvent.job_id == job_id, JobEvent.kind == kind).limit(1))
    if said is None:
        with chain.begin() as session:
            tell(session, job_id, kind, chain.clock(), **body)
