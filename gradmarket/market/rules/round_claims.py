"""An audit of a round that cannot be copied: its digest is under a key for which nobody has published one before.

The roots of accepted answers are public, so a list of them proves no computing. The service hashes the merged payloads
of a round under several keys when it merges them, and forgets the payloads:

    digest[n] = BLAKE3(key[n], payload of the first task || payload of the second || …)

It tells key after key, and a digest only once an auditor sent the same, signed. Whoever has not computed the round has
neither: it knows roots, which give no digest under another key, and digests under keys that count no more. A service
may tell an auditor its digests beforehand; then two that trust no service compare theirs.
"""

from collections.abc import Iterable
from typing import Final

from blake3 import blake3

from gradmarket.market.digests import digest_text, domain_hash
from gradmarket.market.terms import Digest, Hash
from graphdoc.encoding import Bytes

MOST_CLAIMS: Final = 16
"""Claims of a round: each hashes its payloads once more when they are merged."""


def derive_claim_key(secret: Hash, number: int, claim: int) -> Hash:
    """Returns the key of a claim of round `number`, which nobody can know before the service tells it."""
    return domain_hash("claim", secret, number.to_bytes(8, "big"), claim.to_bytes(8, "big"))


def digest_answers(key: Hash, payloads: Iterable[Bytes]) -> Digest:
    """Returns the digest of a round's merged payloads, in the order of its tasks, under the key of a claim."""
    hasher = blake3(key=key)
    for payload in payloads:
        hasher.update(payload)
    return digest_text(hasher)
