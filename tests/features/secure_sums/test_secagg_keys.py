"""Shared secrets of two holders, against the RFCs alone: another program must get the same bytes."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums.key_agreement import (
    ShareChannel,
    export_public_key,
    pair_mask,
    share_channel,
)
from gradmarket.market.features.secure_sums.secret_sharing import WIDTH
from gradmarket.market.terms import Hash

AGGREGATION = Hash(bytes(range(32)))
ONE, OTHER = (X25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2))
IN_COMMON = ONE.exchange(OTHER.public_key())


def hkdf(secret: bytes, name: bytes) -> bytes:
    """RFC 5869 with SHA-256, for 32 bytes: one block."""
    extracted = hmac.digest(AGGREGATION, secret, hashlib.sha256)
    return hmac.digest(extracted, b"gradmarket.secagg " + name + b"\x01", hashlib.sha256)


def pair_of(numbers: tuple[int, int]) -> bytes:
    """Numbers of 32 bits, big-endian, each before its key, the lower number first."""
    named = sorted(zip(numbers, (export_public_key(ONE), export_public_key(OTHER)), strict=True))
    return b"".join(number.to_bytes(4, "big") + key for number, key in named)


@pytest.mark.parametrize("numbers", [(0, 1), (300, 2), (2**31, 2**32 - 1)])
def test_a_pair_s_secrets_are_of_their_numbers_and_keys(numbers: tuple[int, int]) -> None:
    one, other = ((number, export_public_key(key)) for number, key in zip(numbers, (ONE, OTHER), strict=True))
    for derived, name in ((pair_mask, b"pair mask"), (share_channel, b"channel")):
        expected = hkdf(IN_COMMON, name + b" " + pair_of(numbers))
        assert derived(ONE, one, other, AGGREGATION) == derived(OTHER, other, one, AGGREGATION) == expected


def test_shares_are_sealed_by_rfc_8439_for_one_way_of_one_pair() -> None:
    there, shares, marks = ShareChannel(AGGREGATION, b"s" * 32, 3, 4), (b"a" * WIDTH, b"b" * WIDTH), b"m" * 64
    route = bytes([0, 0, 0, 3, 0, 0, 0, 4])
    cipher = ChaCha20Poly1305(hkdf(b"s" * 32, b"shares " + route))
    box = there.seal_shares(shares, marks)
    assert cipher.decrypt(bytes(12), box, AGGREGATION + route + marks) == b"".join(shares)
    assert there.opened(box, marks) == shares
    for wrong in (ShareChannel(AGGREGATION, b"s" * 32, 4, 3), ShareChannel(Hash(bytes(32)), b"s" * 32, 3, 4)):
        with pytest.raises(Refused, match="changed on the way"):
            wrong.opened(box, marks)
    with pytest.raises(Refused, match="holder 3's shares"):
        there.opened(box, b"n" * 64)
