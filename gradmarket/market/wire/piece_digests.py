"""The list of a blob's piece digests: what is wrong of a download is found by it, and fetched again piece by piece.

The list is a hint. It is bound to nothing: a reader holds the whole against the blob's own digest, with it or without.
"""

from gradmarket.market.wire import framing
from graphdoc.encoding import Bytes


def join_piece_digests(data: Bytes) -> bytes:
    """Returns the digests of the pieces, one after the other; nothing where the blob is no longer than one."""
    if len(data) <= framing.PIECE:
        return b""
    starts = range(0, len(data), framing.PIECE)
    return b"".join(framing.piece_digest(data[start : start + framing.PIECE]) for start in starts)


def count_digest_bytes(length: int) -> int:
    """Returns the bytes of the list of a blob of so many bytes."""
    return framing.DIGEST * -(-length // framing.PIECE)


def by_start(digests: bytes) -> dict[int, bytes]:
    """Returns each piece's digest by its first byte in the blob."""
    places = range(0, len(digests), framing.DIGEST)
    return {number * framing.PIECE: digests[place : place + framing.DIGEST] for number, place in enumerate(places)}
