"""Calls for a job's deposit, sender, withdrawals and refunds (IEscrow), and for its reservations (IReservations).

Beside them, those of the token that the market uses; `mint` exists only in the test token.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from contracts.calls.encoding import Call, to_market, to_token
from contracts.packing import pack_reservations
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


def top_up(market: Address, job: int, amount: Units) -> Call:
    return to_market(market, "topUp", job, amount)


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


def approve(token: Address, spender: Address, amount: Amount) -> Call:
    return to_token(token, "approve", spender, amount)


def transfer(token: Address, to: Address, amount: Amount) -> Call:
    return to_token(token, "transfer", to, amount)


def mint(token: Address, to: Address, amount: Amount) -> Call:
    """Mints tokens; only the test token's deployer may send it."""
    return to_token(token, "mint", to, amount)
