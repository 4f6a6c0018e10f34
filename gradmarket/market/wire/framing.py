"""A request with payloads: the length of its JSON in four bytes, big-endian, the JSON, and the payloads it names.

A payload of more than PIECE bytes comes in pieces, each after its blake3: it is checked on arrival, and pieces that
came before a connection broke need not come again. A blob's list of such digests is a hint, by which a download finds
the pieces to fetch again: a reader checks the whole against the blob's own digest in any case.

A PUT by digest needs no pieces: it brings the bytes from its UPLOAD_OFFSET on.

To an upload in pieces or parts, a market answers with the bytes that it has and the address of the rest.
"""

from collections.abc import Iterator
from typing import Final

from blake3 import blake3
from pydantic import Field

from gradmarket.market.errors import Refused
from gradmarket.market.wire import Wire
from gradmarket.market.wire.poll import PollRequest
from graphdoc.encoding import Bytes

HEAD: Final = 4
"""Bytes before the JSON: its length."""
PIECE: Final = 1 << 20
"""Bytes of a piece, the most that a broken connection loses: 0.4 s at 20 Mbit/s; its digest adds 0.003 %. A payload of
at most one piece is sent again as a whole."""
DIGEST: Final = 32
"""Bytes before each piece."""
UPLOAD_OFFSET: Final = "Upload-Offset"
"""Header of a PUT by digest: its first byte's place in the whole."""


def frame_poll_request(request: PollRequest) -> bytes:
    """Returns the bytes before the payloads of a request."""
    json = request.model_dump_json(exclude_defaults=True).encode()
    return len(json).to_bytes(HEAD, "big") + json


def whole_pieces(received: int) -> int:
    """Returns the number of received bytes that count: the last piece may have come in part."""
    return received - received % PIECE


def list_piece_sizes(length: int, start: int) -> Iterator[int]:
    """Yields the bytes of each piece from byte `start` of a payload on."""
    for begin in range(start, length, PIECE):
        yield min(PIECE, length - begin)


def sent_bytes(length: int, start: int | None) -> int:
    """Returns the bytes that follow the request for a payload of `length` bytes; `start` is None without pieces."""
    if start is None:
        return length
    left = max(0, length - start)
    return left + DIGEST * -(-left // PIECE)


def piece_digest(piece: Bytes) -> bytes:
    """Returns the digest that comes before the piece."""
    return blake3(piece).digest()


def check_piece(digest: bytes, piece: Bytes, begin: int) -> None:
    """Raises Refused unless the piece that begins at byte `begin` has this digest."""
    if piece_digest(piece) != digest:
        raise Refused(f"the bytes from {begin} on are not those of their digest", f"send them again from {begin} on")


def join_piece_digests(data: Bytes) -> bytes:
    """Returns the digests of the pieces, one after the other; nothing where the blob is no longer than one."""
    if len(data) <= PIECE:
        return b""
    starts = range(0, len(data), PIECE)
    return b"".join(piece_digest(data[start : start + PIECE]) for start in starts)


def count_digest_bytes(length: int) -> int:
    """Returns the bytes of the list of a blob of `length` bytes."""
    return DIGEST * -(-length // PIECE)


def by_start(digests: bytes) -> dict[int, bytes]:
    """Returns each piece's digest by its first byte in the blob."""
    places = range(0, len(digests), DIGEST)
    return {number * PIECE: digests[place : place + DIGEST] for number, place in enumerate(places)}


class ReceivedBytes(Wire):
    """How many bytes the market has of an upload that broke off: go on from there."""

    received: int = Field(ge=0, lt=2**63)


class PartAddress(Wire):
    """An address that takes `length` bytes of a payload, those from `start` on, by a plain PUT."""

    start: int = Field(ge=0, lt=2**63)
    length: int = Field(ge=1, lt=2**63)
    address: str = Field(max_length=8192)


class MissingParts(Wire):
    """Some of the parts that have not come; none once all have: then a poll reports that the payload is there."""

    parts: tuple[PartAddress, ...] = Field(default=(), max_length=64)
