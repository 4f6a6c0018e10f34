"""A job's escrow: opened when its publication is ready, and what nobody earned taken back when it is over."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.contracts import calls, events
from gradmarket.contracts.calls import Call
from gradmarket.contracts.errors import ContractRefused
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Amount, JobState, Units
from gradmarket.requester.chain import books, escrow, owner, sender
from gradmarket.requester.chain.desk import Desk, Kind
from gradmarket.requester.chain.money import kept_back, with_money
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.tables import Job


def open_jobs(desk: Desk) -> bool:
    """One move for the jobs that wait for their deposits; whether there was one.

    One opening is under way at a time, since each is measured against the balance that the one before leaves.
    """
    with desk.reading() as session:
        if sender.under_way(session, Kind.OPEN):
            return False
        waiting = select(Job).where(Job.state == JobState.AWAITING_FUNDS, Job.chain_job.is_(None))
        jobs = session.scalars(waiting.order_by(Job.created_at, Job.id)).all()
    if desk.owner is not None:
        return sum(_await_owner(desk, job) for job in jobs) > 0
    return any(_open(desk, job) for job in jobs)


def top_up_jobs(desk: Desk) -> bool:
    """Deposits what a job's budget was raised by since; whether there was such a job. An owner does so itself."""
    if desk.owner is not None:
        return False
    with desk.reading() as session:
        raised = select(Job).where(Job.chain_job.is_not(None), Job.ended_at.is_(None), Job.budget > Job.deposited)
        jobs = [job for job in session.scalars(raised) if not sender.under_way(session, Kind.TOP_UP, job.id)]
    return sum(_top_up(desk, job) for job in jobs) > 0


def close_jobs(desk: Desk) -> bool:
    """Takes out what is reserved for nobody in jobs that are over, and after claimUntil all that nobody earned.

    An owner does so itself. As long as audits are due it may be needed yet.
    """
    if desk.owner is not None:
        return False
    with desk.reading() as session:
        over = [job for job in with_money(session) if lifecycle.over(JobState(job.state))]
        cases = [job for job in over if not _closing(session, job.id)]
    return sum(_close(desk, job) for job in cases) > 0


def _closing(session: Session, job_id: str) -> bool:
    return any(sender.under_way(session, kind, job_id) for kind in (Kind.WITHDRAW, Kind.REFUND, Kind.RESERVE))


def _open(desk: Desk, job: Job) -> bool:
    """Looks first whether the chain has the job already: its publication's digest names it."""
    found = events.find_opened(desk.ledger, desk.sender, escrow.spec_digest(job))
    if found is not None:
        with desk.begin() as session:
            books.opened(session, locked(session, Job, job.id), found, desk.clock())
        return True
    deposit = Amount(job.budget * int(job.unit))
    if not has_money(desk, deposit):
        return _say(desk, job.id, f"waits for {deposit} of {desk.ledger.deployment.token} at {desk.sender}")
    if desk.ledger.allowance(desk.sender) < deposit:
        return approve(desk)
    return _post(desk, job.id, Kind.OPEN, calls.open_job(desk.market, terms(desk, job)))


def _await_owner(desk: Desk, job: Job) -> bool:
    """Looks whether the owner has opened the job, under the terms that it was given, and let the sender act for it."""
    found = owner.opened(desk, job)
    if found.job is None:
        return _say(desk, job.id, found.missing)
    with desk.begin() as session:
        books.opened(session, locked(session, Job, job.id), found.job, desk.clock())
    return True


def _top_up(desk: Desk, job: Job) -> bool:
    added = Units(job.budget - job.deposited)
    deposit = Amount(added * int(job.unit))
    if not has_money(desk, deposit):
        return False
    if desk.ledger.allowance(desk.sender) < deposit:
        return approve(desk)
    return _post(desk, job.id, Kind.TOP_UP, calls.top_up(desk.market, job.chain_job or 0, added))


def has_money(desk: Desk, deposit: Amount) -> bool:
    """Whether the sender can put down so much; on a local chain it is given what it lacks."""
    if desk.grant is not None:
        desk.grant(deposit)
    return desk.ledger.balance(desk.sender) >= deposit


def terms(desk: Desk, job: Job) -> calls.OpenJob:
    """What the job is to be opened with, if it were now."""
    expiry = escrow.expiry_of(job, max(desk.clock(), desk.ledger.block().time), desk.policy.lifetime_s)
    shortest = desk.ledger.min_window()
    window = max(desk.policy.claim_window_s, shortest)
    opening = escrow.terms(job, desk.signer, expiry, expiry + window, desk.endpoint)
    return escrow.with_stakes(opening, job, shortest)


def approve(desk: Desk) -> bool:
    """Lets the contract pull what the sender puts down."""
    with desk.reading() as session:
        if sender.under_way(session, Kind.APPROVE):
            return False
    return _post(desk, None, Kind.APPROVE, escrow.approve(desk.ledger.deployment.token, desk.market))


def _close(desk: Desk, job: Job) -> bool:
    chain_job = job.chain_job or 0
    now = desk.ledger.job(chain_job)
    if desk.clock() > now.claim_until:
        left = now.deposited > now.credited
        return left and _post(desk, job.id, Kind.REFUND, calls.refund(desk.market, chain_job))
    free = Units(now.deposited - now.reserved)
    if not free or kept_back(desk, job):
        return False
    return _post(desk, job.id, Kind.WITHDRAW, calls.withdraw_free(desk.market, chain_job, free))


def _post(desk: Desk, job_id: str | None, kind: Kind, call: Call) -> bool:
    try:
        quoted = sender.quote(desk, call)
    except ContractRefused as error:
        return job_id is not None and kind == Kind.OPEN and _say(desk, job_id, str(error))
    return sender.post_once(desk, quoted, kind, job_id)


def _say(desk: Desk, job_id: str, reason: str) -> bool:
    with desk.begin() as session:
        job = locked(session, Job, job_id)
        if job.state == JobState.AWAITING_FUNDS:
            job.reason = reason
    return False
