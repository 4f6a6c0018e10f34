"""EIP-712 signatures: the digest that requester and worker sign, and the recovery of the signer.

Every signed struct of the market has only 32-byte members, so `hashStruct` is one keccak over words (EIP-712,
"Definition of encodeData"). The domain is the contract's own: name, version, chain id and verifying contract.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Protocol

from coincurve import PrivateKey as Secret
from coincurve import PublicKey
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from pydantic import AfterValidator

from gradmarket.market.errors import Refused, SignatureRefused
from gradmarket.market.terms import Address, Hash

NAME: Final = "GradMarket"
VERSION: Final = "1"
_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_DOMAIN_TYPE: Final = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"


@dataclass(frozen=True, slots=True)
class Domain:
    """The scope of a signature: one contract on one chain, and one `instance` of that chain's history."""

    chain_id: int
    contract: Address
    instance: Hash

    @property
    def separator(self) -> Hash:
        return _compute_separator(self.chain_id, self.contract)


@cache
def _compute_separator(chain_id: int, contract: Address) -> Hash:
    words = (
        keccak(text=_DOMAIN_TYPE),
        keccak(text=NAME),
        keccak(text=VERSION),
        encode_word(chain_id),
        encode_word(contract),
    )
    return Hash(keccak(b"".join(words)))


class Struct(Protocol):
    """A frozen dataclass whose `TYPE` is its EIP-712 type string; members are in field order after `instance`."""

    TYPE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def encode_word(value: int | str | bytes) -> bytes:
    """Returns an integer, a 0x address or 32 bytes as one 32-byte word (EIP-712 encodeData of static types).

    Raises SignatureRefused on bytes of another length.
    """
    if isinstance(value, int):
        return value.to_bytes(32, "big")
    if isinstance(value, str):
        return bytes.fromhex(value.removeprefix("0x")).rjust(32, b"\0")
    if len(value) != 32:
        raise SignatureRefused(f"a bytes32 member has {len(value)} bytes")
    return value


@cache
def _describe_struct(struct: type[Struct]) -> tuple[bytes, tuple[str, ...]]:
    """Returns the type's hash and its members' names, in order."""
    return keccak(text=struct.TYPE), tuple(field.name for field in fields(struct))


def digest_struct(domain: Domain, struct: Struct) -> Hash:
    """Returns the 32 bytes that are signed: keccak(0x1901 | domain separator | hashStruct), EIP-712."""
    type_hash, names = _describe_struct(type(struct))
    members = b"".join(encode_word(getattr(struct, name)) for name in names)
    body = keccak(type_hash + domain.instance + members)
    return Hash(keccak(b"\x19\x01" + domain.separator + body))


def sign_digest(key: PrivateKey, message: Hash) -> bytes:
    """Returns 65 bytes r | s | v, with v 27 or 28 and s in the lower half, as OpenZeppelin's ECDSA accepts."""
    return signer_of(key)(message)


def recover_signer(message: Hash, signature: bytes) -> Address:
    """Returns the signer of `message`. Raises SignatureRefused on a short, malleable or invalid signature."""
    return Address(to_checksum_address(_recover_address_bytes(message, signature)))


def _recover_address_bytes(message: Hash, signature: bytes) -> bytes:
    """Returns the signer's address as 20 bytes."""
    if len(signature) != 65:
        raise SignatureRefused(f"{len(signature)} bytes instead of 65")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise SignatureRefused("s is in the upper half (malleable)")
    if signature[64] not in (27, 28):
        raise SignatureRefused("v is neither 27 nor 28")
    try:
        recoverable = signature[:64] + bytes([signature[64] - 27])
        key = PublicKey.from_signature_and_message(recoverable, message, hasher=None)
    except ValueError as error:
        raise SignatureRefused(str(error)) from error
    return keccak(key.format(compressed=False)[1:])[12:]


def check_struct_signature(domain: Domain, struct: Struct, signature: bytes, signer: Address) -> None:
    """Raises SignatureRefused unless `signer` signed `struct` for this domain."""
    check_digest(digest_struct(domain, struct), signature, signer)


def check_digest(message: Hash, signature: bytes, signer: Address) -> None:
    """Raises SignatureRefused unless `signer` signed these 32 bytes."""
    recovered = _recover_address_bytes(message, signature)
    if recovered.hex() != signer[2:].lower():  # the checksum of an address costs as much as the rest of a digest
        raise SignatureRefused(f"signed by {to_checksum_address(recovered)} instead of {signer}")


def address_of(key: PrivateKey) -> Address:
    return Address(key.public_key.to_checksum_address())


def checksum_address(address: str) -> Address:
    """Returns the EIP-55 form of an address. Raises SignatureRefused where it is no address."""
    try:
        return Address(to_checksum_address(address))
    except ValueError as error:
        raise SignatureRefused(f"no address: {address[:50]}") from error


def parse_typed_address(address: str) -> Address:
    """Returns the EIP-55 form of a typed address. Raises Refused where it is none."""
    try:
        return checksum_address(address)
    except SignatureRefused as error:
        raise Refused(f"{address[:50]!r} is no address", "write 0x and 40 hex digits") from error


def parse_named_address(address: str) -> Address:
    """Returns the address of somebody. Raises Refused as `parse_typed_address`, and for the zero address."""
    typed = parse_typed_address(address)
    if not int(typed, 16):
        raise Refused("the zero address has no owner", "name another, or leave it out")
    return typed


def _parse_address_field(address: str) -> Address:
    try:
        return parse_named_address(address)
    except Refused as error:
        raise ValueError(f"{error.detail}: {error.remedy}") from error


NamedAddress = Annotated[Address, AfterValidator(_parse_address_field)]
"""A field in which people write an address, in any spelling of EIP-55."""

Signer = Callable[[Hash], bytes]
"""Signs a 32-byte digest without exposing the key."""


def signer_of(key: PrivateKey) -> Signer:
    """Returns a signer that derives nothing from the key anew."""
    secret = Secret(key.to_bytes())

    def signed(message: Hash) -> bytes:
        signature = secret.sign_recoverable(message, hasher=None)
        return signature[:64] + bytes([27 + signature[64]])

    return signed
