"""Jobs whose money belongs to a key that is elsewhere: what its owner is to sign, and what it signed.

The service gives the transactions out, and looks at the chain: a job runs when it is open there under the terms that
were given out, and the service's sender may reserve and settle for it. The sender can take nothing out.
"""

from dataclasses import dataclass

from gradmarket.contracts import calls, events
from gradmarket.contracts.calls import Call
from gradmarket.contracts.events import JobOpened
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Amount, JobState, Units
from gradmarket.requester.chain import escrow
from gradmarket.requester.chain.desk import Desk
from gradmarket.requester.chain.money import kept_back
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Job


@dataclass(frozen=True, slots=True)
class ToSign:
    """A transaction without value, from `owner`."""

    purpose: str
    owner: Address
    chain_id: int
    call: Call


@dataclass(frozen=True, slots=True)
class Found:
    """The job on the chain, or in words what is missing or wrong."""

    job: JobOpened | None
    missing: str


def opened(desk: Desk, job: Job) -> Found:
    """Raises ChainUnreachable."""
    wrong = ""
    for event in events.all_opened(desk.ledger, _owner(desk), escrow.spec_digest(job)):
        fault = unlike(desk, job, event)
        if not fault:
            return _ready(desk, event)
        wrong = wrong or f"; job {event.job} on-chain is refused: {fault}"
    return Found(None, f"waits for {desk.owner} to sign openJob (`gradmarket job fund {job.id}`){wrong}")


def _ready(desk: Desk, event: JobOpened) -> Found:
    """Deep enough in the chain, and open to the service's sender."""
    if desk.ledger.job(event.job).sender != desk.sender:
        return Found(None, f"waits for {desk.owner} to sign setSender of job {event.job}")
    deep = desk.ledger.block().number - event.block + 1 >= desk.policy.confirmations
    return Found(event if deep else None, f"waits for {desk.policy.confirmations} confirmations of job {event.job}")


def unlike(desk: Desk, job: Job, event: JobOpened) -> str:
    """How the job was opened otherwise than asked for; empty where it was not.

    An owner may take its time to sign: half of the lifetime that it was given must be left, and what the budget was
    raised by meanwhile is asked for afterwards.
    """
    asked = jobs.spec(job).deposit // int(job.unit)
    end, now = jobs.spec(job).deadlines.end, desk.clock()
    shortest = int(end.timestamp()) if end is not None else int(now) + desk.policy.lifetime_s // 2
    checks = (
        (event.deposited < asked, f"deposit {event.deposited} instead of {asked} units"),
        (event.unit != int(job.unit), f"unit {event.unit} instead of {job.unit}"),
        (event.signer != desk.signer, f"voucher signer {event.signer} instead of {desk.signer}"),
        (event.expiry < shortest, f"expiry {event.expiry} before {shortest}"),
        (event.claim_until - event.expiry < desk.policy.claim_window_s, "claim window too short"),
        (event.slash_window != 0, "slash terms that the job does not have"),
        (event.endpoint != desk.endpoint, f"endpoint {event.endpoint[:200]!r} instead of {desk.endpoint!r}"),
    )
    return next((fault for wrong, fault in checks if wrong), "")


def to_sign(desk: Desk, job: Job, terms: calls.OpenJob, added: Units) -> list[ToSign]:
    """What the owner is to sign now, in this order, if the budget grows by `added`.

    Raises ChainUnreachable.
    """
    named = _opening(desk, job, terms, added) if job.chain_job is None else _keeping(desk, job, added)
    chain_id = desk.ledger.deployment.chain_id
    return [ToSign(purpose, _owner(desk), chain_id, call) for purpose, call in named]


def _owner(desk: Desk) -> Address:
    return desk.owner or desk.sender


def _opening(desk: Desk, job: Job, terms: calls.OpenJob, added: Units) -> list[tuple[str, Call]]:
    if job.state != JobState.AWAITING_FUNDS:
        return []
    for event in events.all_opened(desk.ledger, _owner(desk), escrow.spec_digest(job)):
        if not unlike(desk, job, event):
            return [("setSender", calls.set_sender(desk.market, event.job, desk.sender))]
    return [*_approve(desk, job, Units(job.budget + added)), ("openJob", calls.open_job(desk.market, terms))]


def _keeping(desk: Desk, job: Job, added: Units) -> list[tuple[str, Call]]:
    chain_job = job.chain_job or 0
    now = desk.ledger.job(chain_job)
    if lifecycle.over(JobState(job.state)):
        if desk.ledger.block().time > now.claim_until:
            return [("refund", calls.refund(desk.market, chain_job))] if now.deposited > now.credited else []
        free = Units(now.deposited - now.reserved)
        back = free and not kept_back(desk, job)
        return [("withdrawFree", calls.withdraw_free(desk.market, chain_job, free))] if back else []
    short = Units(job.budget + added - job.deposited)
    return [*_approve(desk, job, short), ("topUp", calls.top_up(desk.market, chain_job, short))] if short > 0 else []


def _approve(desk: Desk, job: Job, units: Units) -> list[tuple[str, Call]]:
    """For this deposit alone."""
    amount = Amount(units * int(job.unit))
    if desk.ledger.allowance(_owner(desk)) >= amount:
        return []
    return [("approve", calls.approve(desk.ledger.deployment.token, desk.market, amount))]
