"""Copies a job's money from the contract into the database: absolute figures, so copying twice is harmless."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Select, select

from contracts import events
from contracts.ledger import AccountOnChain
from contracts.rpc import LOCAL_CHAIN_IDS
from gradmarket.market.rules import payment
from gradmarket.market.terms import Address, Amount, Units
from requester.chain.chain_context import ChainContext, opened_in
from requester.store.accounts import accounts_of
from requester.store.among import is_in_bound_list
from requester.store.earned_rows import load_or_create_account
from requester.store.locks import lock_row
from requester.store.tables import Account, Job, Worker
from requester.store.work import RowReader, Work, listeners_of

KEPT_BLOCKS: Final = 64
"""Newest blocks whose figures every node keeps: go-ethereum keeps 128."""


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """A worker's money in a job on-chain, and the part of its stake that the job can slash."""

    account: AccountOnChain
    at_risk: Units


def copy_job_from_chain(chain: ChainContext, job_id: str, block: int) -> None:
    """Copies the job's deposits, refunds and all of its accounts, and those of stakes that it has not seen.

    The figures are those of `_choose_block`. Raises NodeRefused where the node lacks it.
    """
    at = _choose_block(chain, block)
    with chain.reading() as reader:
        row = reader.get_one(Job, job_id)
        chain_job = row.chain_job
        workers = {Address(worker) for worker in reader.session.scalars(_select_account_workers(job_id))}
        first = opened_in(reader, job_id)
    if chain_job is None:
        return
    now, refunded = chain.ledger.job(chain_job, at), events.all_refunded(chain.ledger, chain_job, first, at)
    if now.slash_window:
        joined = events.joined_workers(chain.ledger, chain_job, Amount(row.price * int(row.unit)), first)
        with chain.reading() as reader:
            registered = _list_registered_workers(reader, joined)
        workers |= registered
        chain.strangers.update((chain_job, worker) for worker in joined - registered)
    accounts = {worker: _fetch_chain_figures(chain, row, worker, at) for worker in workers}
    with chain.begin() as work:
        job = lock_row(work, Job, job_id)
        before = min(job.deposited, job.budget)
        # the sum of all deposits: the contract's figure is the rest after refunds. Anybody may deposit up to 2^64
        # units, which no column holds; a job spends its budget at most: more than a budget may be makes no difference
        job.refunded = min(refunded, payment.MAX_UNITS)
        job.deposited = min(now.deposited, payment.MAX_UNITS) + job.refunded
        if (added := min(job.deposited, job.budget) - before) > 0:  # deposits of others beyond the budget date nothing
            for listener in listeners_of(work):
                listener.topped_up(work, job, Units(added), chain.clock())
        _copy_accounts(work, job_id, accounts)


def copy_accounts_from_chain(chain: ChainContext, of: Job, named: Iterable[Address], block: int) -> None:
    """Copies these accounts only."""
    at = _choose_block(chain, block)
    accounts = {worker: _fetch_chain_figures(chain, of, worker, at) for worker in named}
    with chain.begin() as work:
        _copy_accounts(work, of.id, accounts)


def _choose_block(chain: ChainContext, block: int) -> int | None:
    """Returns the block whose figures count: this one, since of several nodes behind one address some lack the newest,
    or the newest where its figures may be gone.

    None, for the newest, on a local chain: that is one node, which keeps no other's.
    """
    if chain.ledger.deployment.chain_id in LOCAL_CHAIN_IDS:
        return None
    newest = chain.ledger.height()
    return block if newest - block < KEPT_BLOCKS else newest


def _fetch_chain_figures(chain: ChainContext, of: Job, worker: Address, at: int | None) -> ChainFigures:
    account = chain.ledger.account(of.chain_job or 0, worker, at)
    return ChainFigures(account, chain.measure_stake(chain, of, worker))


def copy_changed_accounts(chain: ChainContext, first: int, last: int) -> bool:
    """Copies the accounts and jobs that the contract's events name in these blocks; returns whether any was.

    These events are acts of workers, and of owners elsewhere. An account whose worker never signed in is copied once it
    has.
    """
    # those that were refunded or got a deposit, from any sender
    chain_jobs = events.jobs_touched(chain.ledger, first, last)
    with chain.reading() as reader:
        funded = reader.session.scalars(select(Job.id).where(Job.chain_job.in_(chain_jobs))).all()
    for job_id in funded:
        copy_job_from_chain(chain, job_id, last)
    touched = events.accounts_touched(chain.ledger, first, last) | chain.strangers
    with chain.reading() as reader:
        ours = reader.session.scalars(
            select(Job).where(Job.chain_job.in_({chain_job for chain_job, _ in touched}))
        ).all()
        # a stake comes before the account of a newcomer, which has one with its first reservation
        registered = _list_registered_workers(reader, {worker for _, worker in touched})
    copied = False
    for row in ours:
        named = {worker for chain_job, worker in touched if chain_job == row.chain_job}
        if mine := named & registered:
            copy_accounts_from_chain(chain, row, mine, last)
            copied = True
    running = {row.chain_job for row in ours if row.ended_at is None}
    chain.strangers.clear()
    chain.strangers.update(one for one in touched if one[0] in running and one[1] not in registered)
    return bool(copied or funded)


def _select_account_workers(job_id: str) -> Select[str]:
    return select(Account.worker).where(Account.job_id == job_id)


def _list_registered_workers(reader: RowReader, names: Collection[Address]) -> set[Address]:
    """Returns those of the names that ever signed in."""
    return set(reader.session.scalars(_REGISTERED, {"names": list(names)})) if names else set()


_REGISTERED: Final = select(Worker.address).where(is_in_bound_list(Worker.address, "names"))


def _copy_accounts(work: Work, job_id: str, accounts: dict[Address, ChainFigures]) -> None:
    """Copies the figures to accounts, which a stake of a gradient's price or more opens."""
    least = work.get_one(Job, job_id).price
    for worker, seen in accounts.items():
        if seen.at_risk >= least:
            load_or_create_account(work, job_id, worker)
    for row in accounts_of(work, job_id, accounts):
        seen = accounts[row.worker]
        now = seen.account
        if now.reserved > row.reserved or seen.at_risk > row.at_risk:
            work.notify("assign")
        row.reserved, row.settled, row.withdrawn = now.reserved, now.settled, now.withdrawn
        row.at_risk = seen.at_risk
