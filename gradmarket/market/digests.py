"""Digests of bytes: of a blob, such as an answer's payload, and of tagged lists."""

from blake3 import blake3

from gradmarket.market.terms import Digest, Hash
from graphdoc.encoding import Bytes


def digest_text(hasher: blake3) -> Digest:
    """Returns the digest of the bytes that the hasher has read."""
    return Digest("blake3:" + hasher.hexdigest())


def blob_digest(data: Bytes) -> Digest:
    """Returns the digest of bytes in memory or in a mapped file."""
    return digest_text(blake3(data))


def domain_hash(tag: str, *parts: Bytes) -> Hash:
    """Returns H(tag, parts). Every part is preceded by its length, so no two lists share a preimage."""
    hasher = blake3(len(tag).to_bytes(8, "big") + tag.encode())
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return Hash(hasher.digest())
