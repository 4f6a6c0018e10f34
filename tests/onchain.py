"""Actors on a test chain: requesters with money, and jobs that they opened."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from contracts import calls, events
from contracts.ledger import Ledger
from contracts.local import STATE, development_key, fund_gas
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.patience import wait_until

ETHER = 10**18
HOUR = 3600
DEPLOYER = development_key()

NewKey = Callable[[], PrivateKey]


@dataclass(frozen=True)
class OpenedJob:
    """A job on the chain, whose requester has gas money and allows the contract to pull its tokens."""

    id: int
    ledger: Ledger
    requester: PrivateKey
    signer: PrivateKey
    spec_digest: Hash
    expiry: int
    claim_until: int

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract

    def send(self, call: calls.Call, key: PrivateKey | None = None) -> Receipt:
        """By the requester, unless `key` says otherwise."""
        return require_receipt(execute_call(self.ledger.web3, key or self.requester, call))

    def reserve(self, *rows: tuple[Address, int]) -> None:
        self.send(calls.reserve(self.market, self.id, [(worker, Units(units)) for worker, units in rows]))

    def voucher(self, worker: Address, cumulative: int) -> tuple[Voucher, bytes]:
        voucher = Voucher(self.id, worker, Units(cumulative))
        return voucher, sign_digest(self.signer, digest_struct(self.ledger.domain(), voucher))


def with_money(ledger: Ledger, key: PrivateKey, tokens: int = 10**24) -> PrivateKey:
    """Gas money and tokens for `key`, and leave for the contract to pull them."""
    fund_gas(ledger.web3, address_of(key), ETHER)
    place = ledger.deployment
    require_receipt(execute_call(ledger.web3, DEPLOYER, calls.mint(place.token, address_of(key), Amount(tokens))))
    require_receipt(execute_call(ledger.web3, key, calls.approve(place.token, place.contract, Amount(tokens))))
    return key


def open_on(
    ledger: Ledger,
    new_key: NewKey,
    deposit: int = 1_000,
    unit: int = 1,
    expiry_s: int = HOUR,
    window_s: int = HOUR,
    **more: Any,
) -> OpenedJob:
    """`more` are further terms of the opening, such as what vests."""
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + expiry_s
    spec = Hash(keccak(requester.to_bytes()))
    terms = calls.OpenJob(
        Units(deposit), Amount(unit), expiry, expiry + window_s, address_of(signer), spec, endpoint="test", **more
    )
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(ledger.deployment.contract, terms)))
    (event,) = events.opened(ledger, receipt)
    return OpenedJob(event.job, ledger, requester, signer, spec, expiry, expiry + window_s)


OpenJob = Callable[..., OpenedJob]


def wait_until_dumped(folder: Path) -> None:
    """Waits for a whole state file of the chain in this folder that was written after this call."""
    state = folder / STATE
    before = state.stat().st_mtime_ns if state.is_file() else None

    def dumped() -> bool:
        return state.is_file() and state.stat().st_mtime_ns != before and state.read_text().endswith("}")

    wait_until(dumped)
