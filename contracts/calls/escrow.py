"""Calls for a job's deposit, its sender, and the requester's withdrawals and refunds (IEscrow)."""

from dataclasses import astuple, dataclass

from contracts.calls.encoding import Call, to_market
from contracts.permits import SignedPermit
from gradmarket.market.terms import Address, Amount, Hash, Units


@dataclass(frozen=True, slots=True)
class OpenJob:
    """The contract's OpenParams, in its order. With slash terms of zero the job never slashes."""

    amount: Units
    unit: Amount
    expiry: int
    claim_until: int
    voucher_signer: Address
    spec_digest: Hash
    slash_window: int = 0
    contest_window: int = 0
    decision_window: int = 0
    bond: int = 0
    endpoint: str = ""


def open_job(market: Address, terms: OpenJob) -> Call:
    return to_market(market, "openJob", astuple(terms))


def open_job_with_permit(market: Address, terms: OpenJob, permit: SignedPermit) -> Call:
    """Opens a job without an approval before; `permit` is the sender's, for the deposit."""
    return to_market(market, "openJobWithPermit", astuple(terms), *astuple(permit))


def top_up(market: Address, job: int, amount: Units) -> Call:
    return to_market(market, "topUp", job, amount)


def top_up_with_permit(market: Address, job: int, amount: Units, permit: SignedPermit) -> Call:
    return to_market(market, "topUpWithPermit", job, amount, *astuple(permit))


def set_sender(market: Address, job: int, sender: Address) -> Call:
    return to_market(market, "setSender", job, sender)


def withdraw_free(market: Address, job: int, amount: Units) -> Call:
    return to_market(market, "withdrawFree", job, amount)


def refund(market: Address, job: int) -> Call:
    return to_market(market, "refund", job)
