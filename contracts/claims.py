"""A worker's transactions with the contract, each one signed by its own key.

Each function raises ContractRefused without sending if the contract would revert, and returns Unknown if there is no
receipt in time. Then the account on the chain shows the result (Ledger.account), and sending again does no harm.
"""

from collections.abc import Sequence

from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.ledger import Ledger
from contracts.transaction_types import Outcome
from contracts.transactions import execute_call
from gradmarket.market.messages import Payout, Voucher
from gradmarket.market.terms import Address, Units

TIMEOUT_S = 60.0


def redeem(
    ledger: Ledger, key: PrivateKey, voucher: Voucher, signature: bytes, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Redeems a voucher: everything due goes to its worker's payout address, from any sender."""
    return _send_call(ledger, key, calls.redeem(ledger.deployment.contract, voucher, signature), timeout_s)


def redeem_batch(
    ledger: Ledger, key: PrivateKey, vouchers: Sequence[tuple[Voucher, bytes]], timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Redeems many vouchers, of any jobs and workers; events.skipped returns those that the contract skipped."""
    return _send_call(ledger, key, calls.redeem_batch(ledger.deployment.contract, vouchers), timeout_s)


def collect(ledger: Ledger, key: PrivateKey, job: int, worker: Address, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Collects the credit of batches; this is possible for ever."""
    return _send_call(ledger, key, calls.collect(ledger.deployment.contract, job, worker), timeout_s)


def release(ledger: Ledger, key: PrivateKey, job: int, reserved: Units, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Releases the key's own reservation beyond `reserved`; credited money stays reserved."""
    return _send_call(ledger, key, calls.release(ledger.deployment.contract, job, reserved), timeout_s)


def set_payout(ledger: Ledger, key: PrivateKey, payout: Address, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Sets the address to which all earnings of the key go from now on."""
    return _send_call(ledger, key, calls.set_payout(ledger.deployment.contract, payout), timeout_s)


def set_payout_for(
    ledger: Ledger, key: PrivateKey, message: Payout, signature: bytes, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Sends a payout address that a worker signed."""
    return _send_call(ledger, key, calls.set_payout_for(ledger.deployment.contract, message, signature), timeout_s)


def _send_call(ledger: Ledger, key: PrivateKey, call: calls.Call, timeout_s: float) -> Outcome:
    return execute_call(ledger.web3, key, call, timeout_s)
