"""Calls for a job's deposit, sender, withdrawals and refunds (IEscrow), and for its reservations (IReservations).

Beside them, those of the token that the market uses; `mint` exists only in the test token.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from contracts.calls.encoding import Call, to_market, to_token
from contracts.packing import pack_reservations
from contracts.permits import SignedPermit
from gradmarket.market.messages import Release
from gradmarket.market.terms import Address, Amount, Hash, Units

NOTHING: Final = Units(0)
NOBODY: Final = Hash(bytes(32))


@dataclass(frozen=True, slots=True)
class OpenJob:
    """The contract's OpenParams, in its order. With slash terms of zero the job never slashes, and with a vest of zero
    its pay never waits.
    """

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
    vest: Units = NOTHING
    vest_window: int = 0
    vest_quorum: Hash = NOBODY
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


def reserve(market: Address, job: int, rows: Sequence[tuple[Address, Units]]) -> Call:
    """Adds each row's units to that worker's reservation."""
    return to_market(market, "reserve", job, pack_reservations(rows))


def release(market: Address, job: int, reserved: Units) -> Call:
    """Lowers the sender's own reservation to `reserved`, but never below its credit."""
    return to_market(market, "release", job, reserved)


def release_for(market: Address, message: Release, signature: bytes) -> Call:
    """Does the same by the worker's signature; sent by anyone."""
    return to_market(market, "releaseFor", message.job, message.worker, message.reserved, message.nonce, signature)


def close_job(market: Address, job: int, releases: Sequence[tuple[Release, bytes]]) -> Call:
    """Closes the job early: applies the workers' signed releases and refunds everything that is free then.

    Skips releases that are invalid or of another job. No deposit or reservation is possible afterwards.
    """
    rows = [(message.worker, message.reserved, message.nonce, signature) for message, signature in releases]
    return to_market(market, "closeJob", job, rows)


def approve(token: Address, spender: Address, amount: Amount) -> Call:
    return to_token(token, "approve", spender, amount)


def transfer(token: Address, to: Address, amount: Amount) -> Call:
    return to_token(token, "transfer", to, amount)


def mint(token: Address, to: Address, amount: Amount) -> Call:
    """Mints tokens; only the test token's deployer may send it."""
    return to_token(token, "mint", to, amount)
