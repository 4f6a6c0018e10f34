"""The structs that holders sign with their wallets in an aggregation, and the checks of these signatures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from blake3 import blake3

from gradmarket.market import signing
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation, set_digest
from gradmarket.market.features.secure_sums.sum_messages import HolderKeysMessage, MaskedMessage
from gradmarket.market.signing import Domain, Struct
from gradmarket.market.terms import Address, Hash

NO_KEYS: Final = Hash(bytes(32))


@dataclass(frozen=True, slots=True)
class HolderKeys:
    """A holder's public keys for one aggregation. `keys` is their digest (secure_sums.signed)."""

    TYPE: ClassVar[str] = "HolderKeys(bytes32 instance,bytes32 aggregation,address holder,bytes32 keys)"
    aggregation: Hash
    holder: Address
    keys: Hash


@dataclass(frozen=True, slots=True)
class MaskedVector:
    """A masked vector, by its digest. `keys`: all public keys that its holder received, by the digest of their list;
    `sharers`: the set of holders whose masks may be in it, by its digest."""

    TYPE: ClassVar[str] = (
        "MaskedVector(bytes32 instance,bytes32 aggregation,address holder,bytes32 keys,bytes32 sharers,bytes32 vector)"
    )
    aggregation: Hash
    holder: Address
    keys: Hash
    sharers: Hash
    vector: Hash


@dataclass(frozen=True, slots=True)
class Survivors:
    """The set of holders whose sum is to be unmasked, and the set of those that shared, by their digests."""

    TYPE: ClassVar[str] = "Survivors(bytes32 instance,bytes32 aggregation,bytes32 sharers,bytes32 survivors)"
    aggregation: Hash
    sharers: Hash
    survivors: Hash


def select_holder_address(aggregation: Aggregation, holder: int) -> Address:
    """Returns a holder's wallet. Raises Refused where there is no such holder."""
    if not 0 <= holder < len(aggregation.holders):
        raise Refused(f"there is no holder {holder} in this aggregation")
    return aggregation.holders[holder]


def holder_keys(aggregation: Aggregation, message: HolderKeysMessage) -> HolderKeys:
    """Returns the struct that a holder signs with its keys. A key of another aggregation has another digest."""
    return HolderKeys(aggregation.digest, select_holder_address(aggregation, message.holder), keys_digest(message))


def keys_digest(message: HolderKeysMessage) -> Hash:
    named = message.channel_key + message.mask_key + message.self_mark
    return Hash(blake3(named, derive_key_context="gradmarket.secagg keys").digest())


def key_list(aggregation: Aggregation, keys: Mapping[int, HolderKeysMessage]) -> bytes:
    """Returns the digests of all holders' keys, 32 bytes each by number; zeros of those that sent none."""
    return b"".join(
        keys_digest(keys[number]) if number in keys else NO_KEYS for number in range(len(aggregation.holders))
    )


def key_list_digest(key_list: bytes) -> Hash:
    """Returns the digest of the keys that a holder received, which it signs with its masked vector."""
    return Hash(blake3(key_list, derive_key_context="gradmarket.secagg key list").digest())


def masked_vector(aggregation: Aggregation, keys: Hash, sharers: bytes, message: MaskedMessage) -> MaskedVector:
    """Returns the struct that a holder signs with its vector. `keys`: the digest of the list of all keys it
    received."""
    holder = select_holder_address(aggregation, message.holder)
    return MaskedVector(aggregation.digest, holder, keys, set_digest(sharers), message.vector)


def survivors_digest(aggregation: Aggregation, domain: Domain, sharers: bytes, survivors: bytes) -> Hash:
    """Returns the 32 bytes that all survivors sign: the same for all, so that they are computed once."""
    struct = Survivors(aggregation.digest, set_digest(sharers), set_digest(survivors))
    return signing.digest_struct(domain, struct)


def vector_digest(vector: bytes | memoryview) -> Hash:
    return Hash(blake3(vector).digest())


def check_holder_signature(
    aggregation: Aggregation, domain: Domain, struct: Struct, holder: int, signature: bytes
) -> None:
    """Raises SignatureRefused unless this holder's wallet signed the struct."""
    signing.check_struct_signature(domain, struct, signature, select_holder_address(aggregation, holder))


def check_digest(aggregation: Aggregation, digest: Hash, holder: int, signature: bytes) -> None:
    """Raises SignatureRefused unless this holder's wallet signed the digest."""
    signing.check_digest(digest, signature, select_holder_address(aggregation, holder))
