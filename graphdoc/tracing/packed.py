"""A value of a trace as bytes: the length of its header, the header as canonical JSON, and its elements. No torch.

The digest of a value is blake3 of that length, the header, and blake3 of the elements.
"""

from typing import Final

from blake3 import blake3

from graphdoc.encoding import Bytes
from graphdoc.errors import Refused

ABSENT: Final = bytes(32)
"""The digest of a missing value: a gradient that no node gave."""
NOTHING: Final = bytes(4)
"""The bytes of a missing value."""
MOST_HEADER: Final = 4096
_LARGE: Final = 2**20
_BYTES: Final = b'{"kind":"bytes"}'
"""The header of bytes."""


def split_packed(packed: Bytes) -> tuple[bytes, memoryview] | None:
    """Returns the header of a value, and its elements; None for a missing value. Raises Refused on other bytes."""
    view = memoryview(packed).cast("B")
    length = int.from_bytes(view[:4], "big")
    if view == NOTHING:
        return None
    if not 0 < length <= min(MOST_HEADER, len(view) - 4):
        raise Refused("these are not the bytes of a value")
    return bytes(view[4 : 4 + length]), view[4 + length :]


def digest_parts(header: bytes, block_digest: bytes) -> bytes:
    """Returns the digest of a value from its header and the blake3 of its elements."""
    return blake3(len(header).to_bytes(4, "big") + header + block_digest).digest()


def digest_plain_bytes(data: bytes) -> bytes:
    """Returns the digest of a value that is bytes, such as a payload's root."""
    return digest_parts(_BYTES, digest_block(data))


def digest_block(block: Bytes) -> bytes:
    """Returns the blake3 of elements; of many by several threads."""
    return blake3(block, max_threads=blake3.AUTO if len(block) > _LARGE else 1).digest()


def digest_packed(packed: Bytes) -> bytes:
    """Returns the digest of a value from its bytes. Raises Refused for bytes of no value."""
    parts = split_packed(packed)
    return ABSENT if parts is None else digest_parts(parts[0], digest_block(parts[1]))
