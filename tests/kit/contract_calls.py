"""Calls and reads of the contract that neither the service nor a worker makes, and permits (EIP-2612)."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from web3 import Web3

from contracts.calls import Call, OpenJob
from contracts.calls.encoding import to_market
from contracts.deployment import token_at
from contracts.ledger import Ledger
from contracts.transaction_types import Outcome, Unknown
from contracts.transactions import fetch_outcome
from gradmarket.market.messages import Release
from gradmarket.market.signing import address_of, encode_word, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.patience import wait_until

TYPE: Final = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"


@dataclass(frozen=True, slots=True)
class Permit:
    """Allows `spender` to transfer `value` from `owner` until `deadline`; `nonce` is the token's for the owner."""

    owner: Address
    spender: Address
    value: Amount
    nonce: int
    deadline: int


@dataclass(frozen=True, slots=True)
class SignedPermit:
    """The last arguments, in order, of the contract's functions that take a permit."""

    deadline: int
    v: int
    r: bytes
    s: bytes


def sign_permit(key: PrivateKey, separator: Hash, permit: Permit) -> SignedPermit:
    """Signs a permit under the token's own EIP-712 domain; raises ValueError if `key` is not the owner's."""
    if address_of(key) != permit.owner:
        raise ValueError(f"a permit of {permit.owner} signed by {address_of(key)}")
    # the digest that the owner signs; `separator` is the token's DOMAIN_SEPARATOR()
    body = keccak(keccak(text=TYPE) + b"".join(map(encode_word, astuple(permit))))
    signature = sign_digest(key, Hash(keccak(b"\x19\x01" + separator + body)))
    return SignedPermit(permit.deadline, signature[64], signature[:32], signature[32:64])


def build_permit(ledger: Ledger, owner: Address, value: Amount, deadline: int) -> Permit:
    """Returns a permit for the contract, which `owner` signs."""
    nonce = int(token_at(ledger.web3, ledger.deployment.token).functions.nonces(owner).call())
    return Permit(owner, ledger.deployment.contract, value, nonce, deadline)


def token_separator(ledger: Ledger) -> Hash:
    """Returns the separator of the token's EIP-712 domain."""
    return Hash(bytes(token_at(ledger.web3, ledger.deployment.token).functions.DOMAIN_SEPARATOR().call()))


def open_job_with_permit(market: Address, terms: OpenJob, permit: SignedPermit) -> Call:
    """Opens a job without an approval before; `permit` is the sender's, for the deposit."""
    return to_market(market, "openJobWithPermit", astuple(terms), *astuple(permit))


def top_up_with_permit(market: Address, job: int, amount: Units, permit: SignedPermit) -> Call:
    return to_market(market, "topUpWithPermit", job, amount, *astuple(permit))


def release_for(market: Address, message: Release, signature: bytes) -> Call:
    """Releases by the worker's signature; sent by anyone."""
    return to_market(market, "releaseFor", message.job, message.worker, message.reserved, message.nonce, signature)


def close_job(market: Address, job: int, releases: Sequence[tuple[Release, bytes]]) -> Call:
    """Closes the job early: applies the workers' signed releases and refunds everything that is free then.

    Skips releases that are invalid or of another job. No deposit or reservation is possible afterwards.
    """
    rows = [(message.worker, message.reserved, message.nonce, signature) for message, signature in releases]
    return to_market(market, "closeJob", job, rows)


def add_signer(market: Address, job: int, signer: Address) -> Call:
    """Adds a key whose vouchers are valid; keys are never removed."""
    return to_market(market, "addSigner", job, signer)


def is_signer(ledger: Ledger, job: int, signer: Address) -> bool:
    return bool(ledger.market.functions.isSigner(job, signer).call())


def was_accepted(
    ledger: Ledger, job: int, batch: int, worker: Address, price: Units, digest: Hash, proof: Sequence[Hash]
) -> bool:
    """Returns whether a packed batch credited the worker for this gradient; `proof` is made by proofs.build_proof."""
    return bool(ledger.market.functions.wasAccepted(job, batch, worker, price, digest, list(proof)).call())


def to_burn(ledger: Ledger) -> Amount:
    """Returns the amount that is slashed or forfeited and not burnt yet."""
    return Amount(ledger.market.functions.toBurn().call())


def wait_for_outcome(web3: Web3, hash_: str) -> Outcome:
    found: list[Outcome] = []

    def is_known() -> bool:
        found[:] = [fetch_outcome(web3, hash_)]
        return not isinstance(found[0], Unknown)

    wait_until(is_known)
    return found[0]
