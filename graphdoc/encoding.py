"""The bytes of documents and files of arrays: canonical JSON, and the digest of bytes in memory or mapped."""

import json
import mmap
from typing import Any

from blake3 import blake3

Bytes = bytes | bytearray | memoryview | mmap.mmap
"""Bytes that can be read in place. A file too large for memory is mapped."""


def canonical(value: Any) -> bytes:
    """Returns the JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(data: Bytes) -> str:
    """Returns "blake3:" and the hexadecimal BLAKE3 hash of the bytes."""
    return f"blake3:{blake3(data).hexdigest()}"
