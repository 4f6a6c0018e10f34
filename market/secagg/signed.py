"""What holders sign with their wallets in an aggregation, and the checks of it."""

from blake3 import blake3

from gradmarket.market import signing
from gradmarket.market.errors import Refused
from gradmarket.market.messages import HolderKeys, MaskedVector, Survivors
from gradmarket.market.secagg.aggregation import Aggregation, set_digest
from gradmarket.market.secagg.wire_secagg import HolderKeysMessage, MaskedMessage
from gradmarket.market.signing import Domain, Struct
from gradmarket.market.terms import Address, Hash


def address(aggregation: Aggregation, holder: int) -> Address:
    """Returns a holder's wallet. Raises Refused where there is no such holder."""
    if not 0 <= holder < len(aggregation.holders):
        raise Refused(f"there is no holder {holder} in this aggregation")
    return aggregation.holders[holder]


def holder_keys(aggregation: Aggregation, message: HolderKeysMessage) -> HolderKeys:
    """Returns what a holder signs with its keys. A key of another aggregation has another digest."""
    named = message.channel_key + message.mask_key + message.self_mark
    digest = Hash(blake3(named, derive_key_context="gradmarket.secagg keys").digest())
    return HolderKeys(aggregation.digest, address(aggregation, message.holder), digest)


def masked_vector(aggregation: Aggregation, sharers: bytes, message: MaskedMessage) -> MaskedVector:
    holder = address(aggregation, message.holder)
    return MaskedVector(aggregation.digest, holder, set_digest(sharers), message.vector)


def survivors_digest(aggregation: Aggregation, domain: Domain, sharers: bytes, survivors: bytes) -> Hash:
    """Returns the 32 bytes that all survivors sign: the same for all, so that they are computed once."""
    struct = Survivors(aggregation.digest, set_digest(sharers), set_digest(survivors))
    return signing.digest(domain, struct)


def vector_digest(vector: bytes | memoryview) -> Hash:
    return Hash(blake3(vector).digest())


def check(aggregation: Aggregation, domain: Domain, struct: Struct, holder: int, signature: bytes) -> None:
    """Raises SignatureRefused unless this holder's wallet signed the struct."""
    signing.check(domain, struct, signature, address(aggregation, holder))


def check_digest(aggregation: Aggregation, digest: Hash, holder: int, signature: bytes) -> None:
    """Raises SignatureRefused unless this holder's wallet signed the digest."""
    signing.check_digest(digest, signature, address(aggregation, holder))
