"""Copies what the contract says of a job's money into the books: absolute figures, so copying twice is harmless."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from gradmarket.contracts import events, stakes
from gradmarket.contracts.ledger import AccountOnChain, JobOnChain
from gradmarket.contracts.stakes import Exposure
from gradmarket.market.rules.payment import MAX_UNITS
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.requester.chain import escrow
from gradmarket.requester.chain.chain_context import ChainContext
from gradmarket.requester.chain.chain_jobs import opened_in
from gradmarket.requester.store import jobs
from gradmarket.requester.store.session import notify
from gradmarket.requester.store.tables import Account, Job


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """A worker in a job: its money there, and what of its stake the job can slash."""

    account: AccountOnChain
    at_risk: Units


NOTHING: Final = Units(0)


def job(chain: ChainContext, job_id: str) -> None:
    """Deposits, refunds and every account of the job."""
    with chain.reading() as session:
        found = session.get_one(Job, job_id)
        chain_job = found.chain_job
        workers = [Address(worker) for worker in session.scalars(_workers(job_id))]
        first = opened_in(session, job_id)
    if chain_job is None:
        return
    now, refunded = chain.ledger.job(chain_job), events.all_refunded(chain.ledger, chain_job, first)
    accounts = {worker: _seen(chain, found, worker) for worker in workers}
    with chain.begin() as session:
        _copy_job(session.get_one(Job, job_id), now, refunded)
        _copy_accounts(session, job_id, accounts)


def workers(chain: ChainContext, of: Job, named: Iterable[Address]) -> None:
    """These accounts only."""
    accounts = {worker: _seen(chain, of, worker) for worker in named}
    with chain.begin() as session:
        _copy_accounts(session, of.id, accounts)


def counted(found: Exposure, quorum: Hash, unit: Amount) -> Units:
    """What no accusation claims yet; nothing of a worker that has left, or has others decide than the job's."""
    if found.locked_until or found.quorum != quorum:
        return NOTHING
    return Units(min(MAX_UNITS, (found.at_risk - found.accused) // unit))


def _seen(chain: ChainContext, of: Job, worker: Address) -> ChainFigures:
    chain_job, terms = of.chain_job or 0, jobs.spec(of).stake
    account = chain.ledger.account(chain_job, worker)
    if terms is None:
        return ChainFigures(account, NOTHING)
    exposed = stakes.exposure(chain.ledger, chain_job, worker)
    return ChainFigures(account, counted(exposed, escrow.quorum(terms), Amount(int(of.unit))))


def changed(chain: ChainContext, first: int, last: int) -> bool:
    """Copies what the contract's events of these blocks name: what workers, and owners elsewhere, did by themselves."""
    funded = _funded(chain, first, last)
    named = events.accounts_touched(chain.ledger, first, last)
    with chain.reading() as session:
        ours = session.scalars(select(Job).where(Job.chain_job.in_({chain_job for chain_job, _ in named}))).all()
        known = {found.id: set(session.scalars(_workers(found.id))) for found in ours}
    for found in ours:
        mine = [worker for chain_job, worker in named if chain_job == found.chain_job and worker in known[found.id]]
        workers(chain, found, mine)
    return bool(ours) or funded


def _funded(chain: ChainContext, first: int, last: int) -> bool:
    """Copies the jobs that anybody deposited to, or that were refunded."""
    chain_jobs = events.jobs_touched(chain.ledger, first, last)
    with chain.reading() as session:
        ids = session.scalars(select(Job.id).where(Job.chain_job.in_(chain_jobs))).all()
    for job_id in ids:
        job(chain, job_id)
    return bool(ids)


def _workers(job_id: str) -> Select[str]:
    return select(Account.worker).where(Account.job_id == job_id)


def _copy_job(row: Job, now: JobOnChain, refunded: int) -> None:
    """`deposited` counts all that ever came in; the contract's figure is what is left of it."""
    row.deposited, row.refunded = now.deposited + refunded, refunded


def _copy_accounts(session: Session, job_id: str, accounts: dict[Address, ChainFigures]) -> None:
    for worker, seen in accounts.items():
        now = seen.account
        row = session.get_one(Account, (job_id, worker))
        if now.reserved > row.reserved or seen.at_risk > row.at_risk:
            notify(session, "assign")
        row.reserved, row.settled, row.withdrawn = now.reserved, now.settled, now.withdrawn
        row.at_risk = seen.at_risk
