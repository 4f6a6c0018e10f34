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
from contracts.rpc import call_json_rpc
from contracts.transaction_types import Fees, Receipt
from contracts.transactions import execute_call, require_receipt, send_transaction, sign_call
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.kit.contract_calls import wait_for_outcome
from tests.patience import wait_until

ETHER = 10**18
HOUR = 3600
DEPLOYER = development_key()
GAS, OFFERED = 2_000_000, Fees(most=100 * 10**9, tip=10**9)
"""More than any of these calls takes, and than a block without others asks."""

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
        """Sends by the requester, or by `key`."""
        return require_receipt(execute_call(self.ledger.web3, key or self.requester, call))

    def reserve(self, *rows: tuple[Address, int]) -> None:
        call = calls.reserve(self.market, self.id, [(worker, Units(units)) for worker, units in rows])
        send_call(self.ledger, self.requester, call)

    def voucher(self, worker: Address, cumulative: int) -> tuple[Voucher, bytes]:
        voucher = Voucher(self.id, worker, Units(cumulative))
        return voucher, sign_digest(self.signer, digest_struct(self.ledger.domain(), voucher))


def send_call(ledger: Ledger, key: PrivateKey, call: calls.Call) -> Receipt:
    """Sends without a look at fees, gas and pending transactions: `execute_call` makes ten requests for each call."""
    nonce = int(call_json_rpc(ledger.web3, "eth_getTransactionCount", address_of(key), "pending"), 16)
    signed = sign_call(key, ledger.deployment.chain_id, nonce, call, GAS, OFFERED)
    send_transaction(ledger.web3, signed.raw)
    return require_receipt(wait_for_outcome(ledger.web3, signed.hash))


def with_money(ledger: Ledger, key: PrivateKey, tokens: int = 10**24) -> PrivateKey:
    """Gas money and tokens for `key`, and leave for the contract to pull them."""
    fund_gas(ledger.web3, address_of(key), ETHER)
    place = ledger.deployment
    send_call(ledger, DEPLOYER, calls.mint(place.token, address_of(key), Amount(tokens)))
    send_call(ledger, key, calls.approve(place.token, place.contract, Amount(tokens)))
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
    """`more` are further terms of the opening, such as a vest."""
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + expiry_s
    spec = Hash(keccak(requester.to_bytes()))
    terms = calls.OpenJob(
        Units(deposit), Amount(unit), expiry, expiry + window_s, address_of(signer), spec, endpoint="test", **more
    )
    receipt = send_call(ledger, requester, calls.open_job(ledger.deployment.contract, terms))
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
