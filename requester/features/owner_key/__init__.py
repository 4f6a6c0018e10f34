"""Jobs whose money belongs to a key kept elsewhere: the service hands out transactions, and its owner signs them.

The service hands out the transactions and reads the chain. A job runs when it is open on-chain under the terms that
were handed out, and the service's sender may reserve and settle for it. The sender can withdraw nothing.
"""

from typing import NamedTuple

from contracts import calls, events
from contracts.calls import Call, OpenJob
from contracts.event_types import JobOpened
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Amount, JobState, Units
from requester.chain import escrow, funding, outcomes
from requester.chain.chain_context import ChainContext, OwnerElsewhere, ToSign, compute_kept_back
from requester.feature import Feature
from requester.store import jobs
from requester.store.locks import lock_row
from requester.store.tables import Job


class OwnerCall(NamedTuple):
    """The job as opened on-chain, or a text that states the missing or wrong part."""

    job: JobOpened | None
    missing: str


def find_owner_opening(chain: ChainContext, job: Job) -> OwnerCall:
    """Looks on-chain for the job, opened by its owner. Raises ChainUnreachable."""
    wrong = ""
    for event in events.all_opened(chain.ledger, _get_owner(chain), escrow.spec_digest(job)):
        fault = find_opening_fault(chain, job, event)
        if not fault:
            if chain.ledger.job(event.job).sender != chain.sender:
                return OwnerCall(None, f"waits for {chain.owner} to sign setSender of job {event.job}")
            deep = chain.ledger.block().number - event.block + 1 >= chain.policy.confirmations
            return OwnerCall(
                event if deep else None, f"waits for {chain.policy.confirmations} confirmations of job {event.job}"
            )
        wrong = wrong or f"; job {event.job} on-chain is refused: {fault}"
    return OwnerCall(None, f"waits for {chain.owner} to sign openJob (`gradmarket job fund {job.id}`){wrong}")


def find_opening_fault(chain: ChainContext, job: Job, event: JobOpened) -> str:
    """Returns how the opening differs from the requested one; empty where it does not.

    An owner may take its time to sign: half of the lifetime that it was given must be left. Units added to the budget
    meanwhile are deposited afterwards.
    """
    deposit = jobs.load_spec(job).deposit // int(job.unit)
    end, now = jobs.load_spec(job).deadlines.end, chain.clock()
    shortest = int(end.timestamp()) if end is not None else int(now) + chain.policy.lifetime_s // 2
    checks = (
        (event.deposited < deposit, f"deposit {event.deposited} instead of {deposit} units"),
        (event.unit != int(job.unit), f"unit {event.unit} instead of {job.unit}"),
        (event.signer != chain.signer, f"voucher signer {event.signer} instead of {chain.signer}"),
        (event.expiry < shortest, f"expiry {event.expiry} before {shortest}"),
        (event.claim_until - event.expiry < chain.policy.claim_window_s, "claim window too short"),
        (event.slash_window != 0, "slash terms that the job does not have"),
        (event.vest_window != 0, "a vest that the job does not have"),
        (event.endpoint != chain.endpoint, f"endpoint {event.endpoint[:200]!r} instead of {chain.endpoint!r}"),
    )
    return next((fault for wrong, fault in checks if wrong), "")


def to_sign(chain: ChainContext, job: Job, terms: calls.OpenJob, added: Units) -> list[ToSign]:
    """Returns the calls that the owner must sign now, in this order, if the budget grows by `added` units.

    Raises ChainUnreachable.
    """
    steps = list[tuple[str, Call]]()
    if job.chain_job is None and job.state == JobState.AWAITING_FUNDS:
        opened = events.all_opened(chain.ledger, _get_owner(chain), escrow.spec_digest(job))
        event = next((one for one in opened if not find_opening_fault(chain, job, one)), None)
        if event is not None:
            steps.append(("setSender", calls.set_sender(chain.market, event.job, chain.sender)))
        else:
            steps += _list_approval_calls(chain, job, Units(job.budget + added))
            steps.append(("openJob", calls.open_job(chain.market, terms)))
    elif job.chain_job is not None:
        now, short = chain.ledger.job(job.chain_job), Units(job.budget + added - job.deposited)
        over = lifecycle.is_final_state(job.state)
        if over and chain.ledger.block().time > now.claim_until:
            if now.deposited > now.credited:
                steps.append(("refund", calls.refund(chain.market, job.chain_job)))
        elif over:
            free = Units(now.deposited - now.reserved - compute_kept_back(chain, job))
            if free > 0:
                steps.append(("withdrawFree", calls.withdraw_free(chain.market, job.chain_job, free)))
        elif short > 0:
            steps += _list_approval_calls(chain, job, short)
            steps.append(("topUp", calls.top_up(chain.market, job.chain_job, short)))
    chain_id = chain.ledger.deployment.chain_id
    return [ToSign(purpose, _get_owner(chain), chain_id, call) for purpose, call in steps]


def _get_owner(chain: ChainContext) -> Address:
    return chain.owner or chain.sender


def _list_approval_calls(chain: ChainContext, job: Job, units: Units) -> list[tuple[str, Call]]:
    """Returns an approval of this deposit alone; empty where the allowance already covers it."""
    amount = Amount(units * int(job.unit))
    if chain.ledger.allowance(_get_owner(chain)) >= amount:
        return []
    return [("approve", calls.approve(chain.ledger.deployment.token, chain.market, amount))]


class KeyElsewhere(OwnerElsewhere):
    def advance_opening(self, chain: ChainContext, job: Job) -> bool:
        """Waits until the owner has opened the job under the given terms and authorized the sender to act for it."""
        opening = find_owner_opening(chain, job)
        if opening.job is None:
            fault = funding.find_token_fault(chain, _get_owner(chain))
            return funding.store_wait_reason(chain, job.id, fault or opening.missing)
        with chain.begin() as work:
            outcomes.record_escrow_opening(work, lock_row(work, Job, job.id), opening.job, chain.clock())
        return True

    def list_calls(self, chain: ChainContext, job: Job, terms: OpenJob, added: Units) -> list[ToSign]:
        return to_sign(chain, job, terms, added)


class OwnerKeyFeature(Feature):
    name = "owner_key"
    elsewhere = KeyElsewhere()
