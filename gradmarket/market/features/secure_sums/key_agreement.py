"""A holder's keys of one aggregation, all from 32 bytes of entropy: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869).

Two key pairs: one seals shares between neighbours, the other gives the pairwise masks. The second can be learnt by the
requester, where its holder drops out; the first never is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums.secret_sharing import PRIME, SECRET, WIDTH
from gradmarket.market.terms import Hash

KEY: Final = 32
_WIDE: Final = 48
"""Bytes from which a coefficient is reduced: its distance from uniform is below 2^-128."""
_NONCE: Final = bytes(12)
"""Each key seals one message."""


def derive_key(secret: bytes, aggregation: Hash, name: bytes, length: int = KEY) -> bytes:
    return HKDF(SHA256(), length, salt=aggregation, info=b"gradmarket.secagg " + name).derive(secret)


def export_public_key(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def mask_key(seed: bytes, aggregation: Hash) -> X25519PrivateKey:
    """Returns the private key of the pairwise masks from the seed that is dealt among neighbours."""
    return X25519PrivateKey.from_private_bytes(derive_key(seed, aggregation, b"mask key"))


def self_mask(seed: bytes, aggregation: Hash) -> bytes:
    """Returns the key of a holder's own mask from the seed that is dealt among neighbours."""
    return derive_key(seed, aggregation, b"self mask")


@dataclass(frozen=True)
class Secrets:
    """A holder's secrets. The same entropy gives the same secrets for the same aggregation, others for another."""

    entropy: bytes
    aggregation: Hash

    @cached_property
    def channel(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(derive_key(self.entropy, self.aggregation, b"channel"))

    @cached_property
    def mask(self) -> X25519PrivateKey:
        return mask_key(self.mask_seed, self.aggregation)

    @cached_property
    def mask_seed(self) -> bytes:
        return derive_key(self.entropy, self.aggregation, b"mask seed", SECRET)

    @cached_property
    def self_seed(self) -> bytes:
        return derive_key(self.entropy, self.aggregation, b"self seed", SECRET)

    def derive_coefficients(self, name: bytes, count: int) -> list[int]:
        """Returns coefficients for the sharing of the secret of that name, uniform modulo PRIME."""
        key = derive_key(self.entropy, self.aggregation, b"coefficients " + name)
        stream = blake3(key=key).digest(length=_WIDE * count)
        return [int.from_bytes(stream[at : at + _WIDE], "little") % PRIME for at in range(0, len(stream), _WIDE)]


LOW_ORDER: Final = frozenset(
    {
        0,
        1,
        PRIME - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    }
)
"""The coordinates of all points of Curve25519 and its twist whose order divides 8 (Bernstein, cr.yp.to/ecdh.html)."""


def check_public(key: bytes) -> None:
    """Raises Refused on a key that is not the one encoding of its point, or agrees on the same secret with everybody
    (RFC 7748, sections 5 and 6)."""
    point = int.from_bytes(key, "little")
    if point >= PRIME:
        raise Refused("a public key is not in its one encoding", "send a key made by X25519")
    if point in LOW_ORDER:
        raise Refused("a public key is of low order", "send a key made by X25519")


def agree_secret(private: X25519PrivateKey, other: bytes) -> bytes:
    """Returns the secret that two key pairs have in common. Raises Refused on a public key of low order."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise Refused("a public key is of low order", "send a key made by X25519") from error


PublicKey = tuple[int, bytes]
"""A holder's number and one of its public keys."""


def _bind_pair(private: X25519PrivateKey, own: PublicKey, other: PublicKey, aggregation: Hash, name: bytes) -> bytes:
    """Returns 32 bytes that two holders have in common, and no other pair of numbers and keys.

    An X25519 secret alone does not name its keys: everybody can compute other public keys that give the same (RFC 7748,
    section 7). A colluder shown under such a key of an honest holder would have that holder's masks in common with its
    neighbours, of the opposite sign.
    """
    pair = b"".join(number.to_bytes(4, "big") + key for number, key in sorted((own, other)))
    return derive_key(agree_secret(private, other[1]), aggregation, name + b" " + pair)


def pair_mask(private: X25519PrivateKey, own: PublicKey, other: PublicKey, aggregation: Hash) -> bytes:
    """Returns the key of the mask that two holders have in common, by their mask keys."""
    return _bind_pair(private, own, other, aggregation, b"pair mask")


def share_channel(private: X25519PrivateKey, own: PublicKey, other: PublicKey, aggregation: Hash) -> bytes:
    """Returns the secret of the channel between two holders, by their channel keys."""
    return _bind_pair(private, own, other, aggregation, b"channel")


@dataclass(frozen=True)
class ShareChannel:
    """The way of shares from one holder to another: a key of its own, from the secret of both (share_channel)."""

    aggregation: Hash
    secret: bytes
    sender: int
    receiver: int

    def seal_shares(self, shares: tuple[bytes, bytes], marks: bytes) -> bytes:
        """Returns both shares sealed (RFC 8439); `marks` are the shares' digests, which are sent in the open."""
        return self._build_cipher().encrypt(_NONCE, b"".join(shares), self._build_context(marks))

    def opened(self, box: bytes, marks: bytes) -> tuple[bytes, bytes]:
        """Returns both shares. Raises Refused where the box or its marks differ from the sender's."""
        try:
            plain = self._build_cipher().decrypt(_NONCE, box, self._build_context(marks))
        except InvalidTag as error:
            raise Refused(f"holder {self.sender}'s shares were changed on the way") from error
        return plain[:WIDTH], plain[WIDTH:]

    def _build_cipher(self) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(derive_key(self.secret, self.aggregation, b"shares " + self._route))

    def _build_context(self, marks: bytes) -> bytes:
        return self.aggregation + self._route + marks

    @property
    def _route(self) -> bytes:
        return self.sender.to_bytes(4, "big") + self.receiver.to_bytes(4, "big")


def compute_mark(secret: bytes, aggregation: Hash, name: bytes) -> Hash:
    """Returns the digest that identifies a secret or a share. Their 248 random bits keep it from revealing them."""
    return Hash(blake3(aggregation + name + secret, derive_key_context="gradmarket.secagg mark").digest())
