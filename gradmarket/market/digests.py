"""The digest of bytes: of a blob, and of an answer's payload, which is the blob that it is stored as."""

from blake3 import blake3

from gradmarket.market.terms import Digest
from graphdoc.encoding import Bytes


def digest_text(hasher: blake3) -> Digest:
    """Returns the digest of what the hasher took."""
    return Digest("blake3:" + hasher.hexdigest())


def blob_digest(data: Bytes) -> Digest:
    """Returns the digest of bytes in memory or in a mapped file."""
    return digest_text(blake3(data))
