"""What is said to the contracts, as calldata. Nothing here talks to a chain.

Amounts are in the job's units unless they are called `amount` of a token, times Unix seconds.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak

from gradmarket.contracts.artifact import load
from gradmarket.contracts.packing import Group, pack_groups, pack_reservations
from gradmarket.market.messages import Release, Voucher
from gradmarket.market.terms import Address, Amount, Hash, Units


@dataclass(frozen=True, slots=True)
class Call:
    """`data` for the contract at `to`, or a contract's creation where that is None."""

    to: Address | None
    data: bytes


@dataclass(frozen=True, slots=True)
class OpenJob:
    """The contract's OpenParams, in its order. Slash terms of zero: the job never slashes."""

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
    return _market(market, "openJob", astuple(terms))


def top_up(market: Address, job: int, amount: Units) -> Call:
    return _market(market, "topUp", job, amount)


def set_sender(market: Address, job: int, sender: Address) -> Call:
    return _market(market, "setSender", job, sender)


def reserve(market: Address, job: int, rows: Sequence[tuple[Address, Units]]) -> Call:
    """Adds each row's units to that worker's reservation."""
    return _market(market, "reserve", job, pack_reservations(rows))


def settle_packed(market: Address, job: int, batch: int, groups: Sequence[Group]) -> Call:
    return _market(market, "settlePacked", job, batch, pack_groups(groups))


def withdraw_free(market: Address, job: int, amount: Units) -> Call:
    return _market(market, "withdrawFree", job, amount)


def refund(market: Address, job: int) -> Call:
    return _market(market, "refund", job)


def redeem(market: Address, voucher: Voucher, signature: bytes) -> Call:
    """Pays the voucher's worker, whoever sends it."""
    return _market(market, "redeem", voucher.job, voucher.worker, voucher.cumulative, signature)


def collect(market: Address, job: int, worker: Address) -> Call:
    """Pays what is credited already: batches, and vouchers beyond an earlier reservation."""
    return _market(market, "collect", job, worker)


def release(market: Address, job: int, reserved: Units) -> Call:
    """Lowers the sender's own reservation to `reserved`, never below what it is credited with."""
    return _market(market, "release", job, reserved)


def release_for(market: Address, message: Release, signature: bytes) -> Call:
    """The same by the worker's signature, whoever sends it."""
    return _market(market, "releaseFor", message.job, message.worker, message.reserved, message.nonce, signature)


def set_payout(market: Address, payout: Address) -> Call:
    return _market(market, "setPayout", payout)


def approve(token: Address, spender: Address, amount: Amount) -> Call:
    return Call(token, _encoded("GradToken", "approve", (spender, amount)))


def transfer(token: Address, to: Address, amount: Amount) -> Call:
    return Call(token, _encoded("GradToken", "transfer", (to, amount)))


def mint(token: Address, to: Address, amount: Amount) -> Call:
    """By the test token's deployer only."""
    return Call(token, _encoded("GradToken", "mint", (to, amount)))


def construct(contract: str, *arguments: Any) -> Call:
    """Creates `GradMarket` or `GradToken`."""
    artifact = load(contract)
    types = next(_types(item) for item in artifact.abi if item["type"] == "constructor")
    return Call(None, artifact.bytecode + encode(types, arguments))


def _market(market: Address, function: str, *arguments: Any) -> Call:
    return Call(market, _encoded("GradMarket", function, arguments))


def _encoded(contract: str, function: str, arguments: Sequence[Any]) -> bytes:
    selector, types = _function(contract, function)
    return selector + encode(types, arguments)


@cache
def _function(contract: str, function: str) -> tuple[bytes, tuple[str, ...]]:
    """Selector and argument types; neither contract overloads a function that is sent."""
    item = next(item for item in load(contract).abi if item["type"] == "function" and item["name"] == function)
    types = _types(item)
    return keccak(text=f"{function}({','.join(types)})")[:4], types


def _types(item: Any) -> tuple[str, ...]:
    return tuple(collapse_if_tuple(argument) for argument in item["inputs"])
