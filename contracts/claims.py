"""A worker's dealings with the contract, each one transaction from its own key.

Each raises ContractRefused without sending where the contract would refuse, and gives Unknown where no word came in
time: then the account on the chain tells (Ledger.account), and the same may be sent again without harm.
"""

from collections.abc import Sequence

from eth_keys.datatypes import PrivateKey

from gradmarket.contracts import calls
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.transactions import Outcome, execute
from gradmarket.market.messages import Payout, Release, Voucher
from gradmarket.market.terms import Address, Units

TIMEOUT_S = 60.0


def redeem(
    ledger: Ledger, key: PrivateKey, voucher: Voucher, signature: bytes, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Presents a voucher: all that is due goes to its worker's payout address, whoever sends it."""
    return _send(ledger, key, calls.redeem(ledger.deployment.contract, voucher, signature), timeout_s)


def redeem_batch(
    ledger: Ledger, key: PrivateKey, vouchers: Sequence[tuple[Voucher, bytes]], timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Presents many vouchers, of any jobs and workers; events.skipped tells which the contract passed over."""
    return _send(ledger, key, calls.redeem_batch(ledger.deployment.contract, vouchers), timeout_s)


def collect(ledger: Ledger, key: PrivateKey, job: int, worker: Address, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Takes what batches have credited; possible for ever."""
    return _send(ledger, key, calls.collect(ledger.deployment.contract, job, worker), timeout_s)


def release(ledger: Ledger, key: PrivateKey, job: int, reserved: Units, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Gives back the own reservation beyond `reserved`; the contract keeps what is credited."""
    return _send(ledger, key, calls.release(ledger.deployment.contract, job, reserved), timeout_s)


def release_for(
    ledger: Ledger, key: PrivateKey, message: Release, signature: bytes, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Sends a release that its worker signed."""
    return _send(ledger, key, calls.release_for(ledger.deployment.contract, message, signature), timeout_s)


def set_payout(ledger: Ledger, key: PrivateKey, payout: Address, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Where all that the key earns goes from now on."""
    return _send(ledger, key, calls.set_payout(ledger.deployment.contract, payout), timeout_s)


def set_payout_for(
    ledger: Ledger, key: PrivateKey, message: Payout, signature: bytes, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Sends what a worker signed about where its earnings go."""
    return _send(ledger, key, calls.set_payout_for(ledger.deployment.contract, message, signature), timeout_s)


def _send(ledger: Ledger, key: PrivateKey, call: calls.Call, timeout_s: float) -> Outcome:
    return execute(ledger.web3, key, call, timeout_s)
