"""Opens a job's escrow when its publication is ready, and takes back unearned money when the job is over."""

from sqlalchemy import select

from contracts import calls, events
from contracts.calls import Call
from contracts.token_moves import token_move
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Amount, JobState, Units
from gradmarket.network.chain_errors import ContractRefused
from requester.chain import escrow, outcomes, sender
from requester.chain.chain_context import ChainContext, TransactionKind, compute_kept_back, record_once, with_money
from requester.store.locks import lock_row
from requester.store.tables import Job


def open_jobs(chain: ChainContext) -> bool:
    """Advances the jobs that wait for their deposits by one step; returns whether any moved.

    One opening is pending at a time, since each is measured against the balance that the previous one leaves.
    """
    with chain.reading() as reader:
        if sender.under_way(reader, TransactionKind.OPEN):
            return False
        waiting = select(Job).where(Job.state == JobState.AWAITING_FUNDS, Job.chain_job.is_(None))
        jobs = reader.session.scalars(waiting.order_by(Job.created_at, Job.id)).all()
    if chain.elsewhere is not None:
        return sum(chain.elsewhere.advance_opening(chain, job) for job in jobs) > 0
    for job in jobs:
        event = events.find_opened(chain.ledger, chain.sender, escrow.spec_digest(job))
        deposit = Amount(job.budget * int(job.unit))
        if event is not None:  # the chain has a job with the digest of its publication already
            with chain.begin() as work:
                outcomes.record_escrow_opening(work, lock_row(work, Job, job.id), event, chain.clock())
            moved = True
        elif not has_money(chain, deposit):
            text = f"waits for {deposit} of {chain.ledger.deployment.token} at {chain.sender}"
            moved = store_wait_reason(chain, job.id, text)
        elif why := find_token_fault(chain, chain.sender):
            moved = store_wait_reason(chain, job.id, why)
        elif chain.ledger.allowance(chain.sender) < deposit:
            moved = post_approval(chain)
        else:
            opening = calls.open_job(chain.market, compute_job_terms(chain, job))
            moved = post_call(chain, job.id, TransactionKind.OPEN, opening)
        if moved:
            return True
    return False


def close_jobs(chain: ChainContext) -> bool:
    """Withdraws the unreserved money of jobs that are over, and after claimUntil refunds all unearned money.

    Returns whether anything was posted. An owner does this itself. Money that open audits may still award is kept.
    """
    if chain.owner is not None:
        return False
    with chain.reading() as reader:
        over = [job for job in with_money(reader) if lifecycle.is_final_state(job.state)]
        cases = [
            job
            for job in over
            if not any(
                sender.under_way(reader, kind, job.id)
                for kind in (TransactionKind.WITHDRAW, TransactionKind.REFUND, TransactionKind.RESERVE)
            )
        ]
    moved = False
    for job in cases:
        chain_job = job.chain_job or 0
        now = chain.ledger.job(chain_job)
        if chain.ledger.next_time() > now.claim_until:
            if now.deposited > now.credited:
                moved |= post_call(chain, job.id, TransactionKind.REFUND, calls.refund(chain.market, chain_job))
        elif (free := Units(now.deposited - now.reserved - compute_kept_back(chain, job))) > 0:
            withdrawal = calls.withdraw_free(chain.market, chain_job, free)
            moved |= post_call(chain, job.id, TransactionKind.WITHDRAW, withdrawal)
    return moved


def has_money(chain: ChainContext, deposit: Amount) -> bool:
    """Returns whether the sender has this deposit; on a local chain it first gets the missing amount."""
    if chain.grant is not None:
        chain.grant(deposit)
    return chain.ledger.balance(chain.sender) >= deposit


def find_token_fault(chain: ChainContext, holder: Address) -> str:
    """Returns why this token takes no deposits; empty for one that moves the asked amounts, as far as is seen."""
    ledger = chain.ledger
    move = token_move(ledger.web3, ledger.deployment.token, holder, chain.market)
    fault = move.fault if move is not None else ""
    return f"the token {ledger.deployment.token} {fault}; deploy the market with another one" if fault else ""


def compute_job_terms(chain: ChainContext, job: Job) -> calls.OpenJob:
    """Returns the terms with which the job would be opened now."""
    expiry = escrow.expiry_of(job, max(chain.clock(), chain.ledger.block().time), chain.policy.lifetime_s)
    shortest = chain.ledger.min_window()
    window = max(chain.policy.claim_window_s, shortest)
    opening = escrow.build_opening_terms(job, chain.signer, expiry, expiry + window, chain.endpoint)
    return chain.extend_opening(opening, job, shortest)


def post_approval(chain: ChainContext) -> bool:
    """Approves the sender's tokens for the contract, unless an approval is pending; returns whether one was posted."""
    with chain.reading() as reader:
        if sender.under_way(reader, TransactionKind.APPROVE):
            return False
    return post_call(
        chain, None, TransactionKind.APPROVE, escrow.build_approval_call(chain.ledger.deployment.token, chain.market)
    )


def post_call(chain: ChainContext, job_id: str | None, kind: TransactionKind, call: Call) -> bool:
    try:
        quoted = sender.quote_call(chain, call)
    except ContractRefused as error:
        if job_id is not None and kind == TransactionKind.OPEN:
            return store_wait_reason(chain, job_id, str(error))
        if job_id is not None:
            record_once(chain, job_id, f"{kind}_refused", reason=str(error))
        return False
    return sender.post_once(chain, quoted, kind, job_id)


def store_wait_reason(chain: ChainContext, job_id: str, reason: str) -> bool:
    with chain.begin() as work:
        job = lock_row(work, Job, job_id)
        if job.state == JobState.AWAITING_FUNDS:
            job.reason = reason
    return False
