"""Copies what the contract says of a job's money into the books: absolute figures, so copying twice is harmless."""

from collections.abc import Iterable

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from gradmarket.contracts import events
from gradmarket.contracts.ledger import AccountOnChain, JobOnChain
from gradmarket.market.terms import Address
from gradmarket.requester.chain.desk import Desk
from gradmarket.requester.chain.money import opened_in
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Account, Job


def job(desk: Desk, job_id: str) -> None:
    """Deposits, refunds and every account of the job."""
    with desk.reading() as session:
        chain_job = session.get_one(Job, job_id).chain_job
        workers = [Address(worker) for worker in session.scalars(_workers(job_id))]
        first = opened_in(session, job_id)
    if chain_job is None:
        return
    now, refunded = desk.ledger.job(chain_job), events.all_refunded(desk.ledger, chain_job, first)
    accounts = {worker: desk.ledger.account(chain_job, worker) for worker in workers}
    with desk.begin() as session:
        _copy_job(session.get_one(Job, job_id), now, refunded)
        _copy_accounts(session, job_id, accounts)


def workers(desk: Desk, job_id: str, chain_job: int, named: Iterable[Address]) -> None:
    """These accounts only."""
    accounts = {worker: desk.ledger.account(chain_job, worker) for worker in named}
    with desk.begin() as session:
        _copy_accounts(session, job_id, accounts)


def changed(desk: Desk, first: int, last: int) -> bool:
    """Copies what the contract's events of these blocks name: what workers, and owners elsewhere, did by themselves."""
    funded = _funded(desk, first, last)
    named = events.accounts_touched(desk.ledger, first, last)
    with desk.reading() as session:
        ours = session.scalars(select(Job).where(Job.chain_job.in_({chain_job for chain_job, _ in named}))).all()
        known = {found.id: set(session.scalars(_workers(found.id))) for found in ours}
    for found in ours:
        mine = [worker for chain_job, worker in named if chain_job == found.chain_job and worker in known[found.id]]
        workers(desk, found.id, found.chain_job or 0, mine)
    return bool(ours) or funded


def _funded(desk: Desk, first: int, last: int) -> bool:
    """Copies the jobs that anybody deposited to, or that were refunded."""
    chain_jobs = events.jobs_touched(desk.ledger, first, last)
    with desk.reading() as session:
        ids = session.scalars(select(Job.id).where(Job.chain_job.in_(chain_jobs))).all()
    for job_id in ids:
        job(desk, job_id)
    return bool(ids)


def _workers(job_id: str) -> Select[str]:
    return select(Account.worker).where(Account.job_id == job_id)


def _copy_job(row: Job, now: JobOnChain, refunded: int) -> None:
    """`deposited` counts all that ever came in; the contract's figure is what is left of it."""
    row.deposited, row.refunded = now.deposited + refunded, refunded


def _copy_accounts(session: Session, job_id: str, accounts: dict[Address, AccountOnChain]) -> None:
    for worker, now in accounts.items():
        row = session.get_one(Account, (job_id, worker))
        if now.reserved > row.reserved:
            ring(session, "assign")
        row.reserved, row.settled, row.withdrawn = now.reserved, now.settled, now.withdrawn
