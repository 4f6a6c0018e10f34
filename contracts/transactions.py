"""Prices, signs and sends a transaction, and finds its outcome.

The outcome is a value: mined, reverted or unknown. Unknown is no failure: the transaction may be mined later, so
nothing may be paid again because of it.

Fees are EIP-1559's, or one price where the chain has no base fee. `gas_price` computes them.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

from eth_account import Account
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from hexbytes import HexBytes
from web3 import Web3
from web3.exceptions import TransactionNotFound
from web3.types import TxParams

from contracts.calls import Call
from contracts.gas_price import GasPrice, compute_least_replacement, compute_offered_fees, compute_raised_fees
from contracts.rpc import node_errors
from contracts.transaction_types import Fees, Mined, Outcome, Receipt, Reverted, Signed, Unknown
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from gradmarket.network.chain_errors import ChainUnreachable, ContractRefused, NodeRefused

MAX_GAS: Final = 2**24
"""The gas limit of one transaction (EIP-7825)."""
GAS_MARGIN: Final = 1.25
POLL_S: Final = 0.05
NONCE_TRIES: Final = 20
RAISES: Final = 20
"""Raises by BUMP, each on top of the last, to replace a transaction whose fees are not known: tenfold together."""
RAISE_S: Final = 5.0
"""Seconds between looks at the base fee while a transaction waits."""
STUCK_S: Final = 30.0
"""Seconds without a mined one after which a waiting transaction is taken for stuck."""


def execute_call(web3: Web3, key: PrivateKey, call: Call, timeout_s: float = 60.0) -> Outcome:
    """Sends from `key`'s account with its next nonce, and waits; tries again if another transaction takes that nonce.

    Where the base fee rises beyond its offer meanwhile, it is replaced; so is one of an earlier call that waits
    for STUCK_S already: later transactions could not be mined before it, and its sender sends it again. A node
    wants more for that than its unknown offer: our fees are raised at once until the node takes them.

    Raises ContractRefused without sending if the contract would revert, NodeRefused if there is no money for gas or the
    stuck transaction offers too much for it, and ChainUnreachable only if nothing was sent yet.
    """
    sender = address_of(key)
    gas, chain = estimate_gas_limit(web3, sender, call), chain_id(web3)
    for _ in range(NONCE_TRIES):
        nonce, stuck = _free_nonce(web3, sender)
        again, price, raises = (
            partial(sign_call, key, chain, nonce, call, gas),
            fetch_fees(web3),
            RAISES if stuck else 0,
        )
        signed = again(price)
        try:
            while not (taken := _send_new(web3, signed.raw)) and raises:
                price, raises = compute_least_replacement(price), raises - 1
                signed = again(price)
            if stuck and not taken:
                raise NodeRefused(f"a transaction that waits (nonce {nonce}) offers more than {price.most} wei for gas")
            if not _is_nonce_overtaken(web3, sender, nonce, signed):
                break
        except ChainUnreachable:
            break
    return _wait_raising(web3, signed, price, again, time.monotonic() + timeout_s)


def _free_nonce(web3: Web3, sender: Address) -> tuple[int, bool]:
    """Returns the next nonce; where none was mined for STUCK_S, that of the oldest that waits, and True for stuck."""
    oldest, until = _fetch_nonce(web3, sender, "latest"), time.monotonic() + STUCK_S
    while _fetch_nonce(web3, sender, "pending") > oldest:
        if time.monotonic() >= until:
            return oldest, True
        time.sleep(POLL_S)
        if _fetch_nonce(web3, sender, "latest") > oldest:
            return _fetch_nonce(web3, sender, "pending"), False
    return oldest, False


def _wait_raising(web3: Web3, first: Signed, price: Fees, again: Callable[[Fees], Signed], until: float) -> Outcome:
    """Waits for the transaction, or one of those that replace it because the base fee went beyond its offer."""
    tried, look_at = [first], time.monotonic() + RAISE_S
    while True:
        for signed in reversed(tried):
            with suppress(NodeRefused):  # it is sent already, at any answer
                result = fetch_outcome(web3, signed.hash)
                if not isinstance(result, Unknown):
                    return result
        if time.monotonic() > until:
            return Unknown(tried[-1].hash)
        if time.monotonic() > look_at:
            look_at = time.monotonic() + RAISE_S
            with suppress(ChainUnreachable, NodeRefused):
                if new := compute_raised_fees(price, gas_price(web3), overdue=False):
                    price = new
                    tried.append(again(new))
                    send_transaction(web3, tried[-1].raw)
        time.sleep(POLL_S)


def _send_new(web3: Web3, raw: bytes) -> bool:
    """Sends the transaction; returns False where the node keeps another one that waits with this nonce."""
    try:
        send_transaction(web3, raw)
    except NodeRefused as error:
        if "replacement transaction underpriced" not in error.detail.lower():
            raise
        return False
    return True


def _is_nonce_overtaken(web3: Web3, sender: Address, nonce: int, signed: Signed) -> bool:
    """Returns whether another transaction, mined or waiting, has taken the nonce; False where the node does not answer
    that.
    """
    try:
        with node_errors():
            web3.eth.get_transaction(HexBytes(signed.hash))
    except TransactionNotFound:
        return _fetch_nonce(web3, sender, "pending") > nonce
    except NodeRefused:
        return False
    return False


def _fetch_nonce(web3: Web3, sender: Address, block: Literal["latest", "pending"]) -> int:
    with node_errors():
        return int(web3.eth.get_transaction_count(to_checksum_address(sender), block))


def require_receipt(outcome: Outcome) -> Receipt:
    """Returns the receipt of a success; raises ContractRefused for a revert, ChainUnreachable if unknown."""
    match outcome:
        case Mined(receipt):
            return receipt
        case Reverted(name, _):
            raise ContractRefused(name)
        case Unknown(hash_):
            raise ChainUnreachable(f"no receipt yet for {hash_}")


def estimate_gas_limit(web3: Web3, sender: Address, call: Call) -> int:
    """Returns a gas limit with a margin of a quarter; raises ContractRefused if the call would revert now."""
    with node_errors():
        parameters: TxParams = {"from": to_checksum_address(sender), "data": HexBytes(call.data)}
        if call.to is not None:
            parameters["to"] = to_checksum_address(call.to)
        return min(MAX_GAS, int(web3.eth.estimate_gas(parameters) * GAS_MARGIN))


def gas_price(web3: Web3) -> GasPrice:
    """Returns the current price of gas: by EIP-1559, or `eth_gasPrice` of a chain without a base fee."""
    with node_errors():
        base = web3.eth.get_block("latest").get("baseFeePerGas")
        if base is None:
            return GasPrice(None, max(1, int(web3.eth.gas_price)))
        return GasPrice(int(base), max(1, int(web3.eth.max_priority_fee)))


def fetch_fees(web3: Web3, ceiling: int | None = None) -> Fees:
    """Returns the fees to offer now, in wei per gas. Raises GasTooDear where that is more than the ceiling."""
    return compute_offered_fees(gas_price(web3), ceiling)


def sign_call(key: PrivateKey, chain: int, nonce: int, call: Call, gas: int, price: Fees) -> Signed:
    """Signs a transaction without value: of type 2 (EIP-1559), or a legacy one (EIP-155) where the fees are such."""
    fields: dict[str, Any] = {"chainId": chain, "nonce": nonce, "gas": gas, "value": 0, "data": call.data}
    if price.legacy:
        fields |= {"gasPrice": price.most}
    else:
        fields |= {"type": 2, "maxFeePerGas": price.most, "maxPriorityFeePerGas": price.tip}
    fields |= {"to": to_checksum_address(call.to)} if call.to else {}
    signed = Account.sign_transaction(fields, key)
    return Signed(bytes(signed.raw_transaction), signed.hash.to_0x_hex())


def offer_in(raw: bytes) -> tuple[int, Fees]:
    """Returns the gas limit and the fees of a signed transaction of type 2."""
    fields = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()
    return fields["gas"], Fees(fields["maxFeePerGas"], fields["maxPriorityFeePerGas"])


def send_transaction(web3: Web3, raw: bytes) -> None:
    """Sends the transaction to the node; it is no error if the node has it already or its nonce is mined.

    Raises NodeRefused, or ChainUnreachable, after which the transaction may have arrived or not.
    """
    try:
        with node_errors():
            web3.eth.send_raw_transaction(HexBytes(raw))
    except NodeRefused as error:
        if not any(words in error.detail.lower() for words in ("already known", "already imported", "nonce too low")):
            raise


def fetch_outcome(web3: Web3, hash_: str, confirmations: int = 1) -> Outcome:
    """Returns the transaction's outcome; 1 confirmation is its own block. Unknown if the node does not answer."""
    try:
        with node_errors():
            mined = web3.eth.get_transaction_receipt(HexBytes(hash_))
            if web3.eth.block_number < mined["blockNumber"] + confirmations - 1:
                return Unknown(hash_)
            created = mined["contractAddress"]
            receipt = Receipt(
                hash=HexBytes(mined["transactionHash"]).to_0x_hex(),
                block=mined["blockNumber"],
                gas=mined["gasUsed"],
                cost=mined["gasUsed"] * mined["effectiveGasPrice"],
                created=Address(to_checksum_address(created)) if created else None,
                raw=mined,
            )
            return Mined(receipt) if mined["status"] == 1 else Reverted(_fetch_revert_name(web3, receipt), receipt)
    except (TransactionNotFound, ChainUnreachable):
        return Unknown(hash_)


def chain_id(web3: Web3) -> int:
    with node_errors():
        return int(web3.eth.chain_id)


def _fetch_revert_name(web3: Web3, receipt: Receipt) -> str:
    """Returns the error's name by calling it again; empty if the call does not revert now."""
    try:
        with node_errors():
            sent = web3.eth.get_transaction(HexBytes(receipt.hash))
            web3.eth.call({"from": sent["from"], "to": sent["to"], "data": sent["input"]}, receipt.block)
    except ContractRefused as error:
        return error.name
    except (NodeRefused, TransactionNotFound, ChainUnreachable):
        return ""
    return ""
