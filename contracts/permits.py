"""Signs permits (EIP-2612): signatures in place of approvals, under the token's own EIP-712 domain."""

from dataclasses import astuple, dataclass
from typing import Final

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from gradmarket.market.signing import address_of, encode_word, sign_digest
from gradmarket.market.terms import Address, Amount, Hash

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
    """Signs a permit; raises ValueError if `key` is not the owner's, since the token would reject the permit."""
    if address_of(key) != permit.owner:
        raise ValueError(f"a permit of {permit.owner} signed by {address_of(key)}")
    # the digest that the owner signs; `separator` is the token's DOMAIN_SEPARATOR()
    body = keccak(keccak(text=TYPE) + b"".join(map(encode_word, astuple(permit))))
    signature = sign_digest(key, Hash(keccak(b"\x19\x01" + separator + body)))
    return SignedPermit(permit.deadline, signature[64], signature[:32], signature[32:64])
