"""The Merkle root of a payload: a blake3 tree over leaves of 64 KiB, so that a chunk can be proven alone.

    leaf = derive_key("gradmarket.payload.leaf", chunk)
    node = derive_key("gradmarket.payload.node", left | right)
    root = derive_key("gradmarket.payload.root", length as 8 bytes little-endian | top)

derive_key is blake3's mode with a context, so leaves, nodes and roots can never be confused. An odd node at the end of
a level is promoted unchanged (the shape of RFC 6962). An empty payload is one empty leaf. The length, bound into the
root, distinguishes trees of different lengths.
"""

from collections.abc import Sequence
from typing import Final

from blake3 import blake3

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.terms import Digest

LEAF_BYTES: Final = 2**16
LEAF: Final = "gradmarket.payload.leaf"
NODE: Final = "gradmarket.payload.node"
ROOT: Final = "gradmarket.payload.root"


def _leaf(chunk: memoryview | bytes) -> bytes:
    return blake3(chunk, derive_key_context=LEAF).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return blake3(left + right, derive_key_context=NODE).digest()


def _root(length: int, top: bytes) -> Digest:
    return Digest("blake3:" + blake3(length.to_bytes(8, "little") + top, derive_key_context=ROOT).hexdigest())


def leaf_count(length: int) -> int:
    """Returns the number of leaves of a payload of `length` bytes."""
    return max(1, -(-length // LEAF_BYTES))


class RootHasher:
    """Computes the root of bytes that arrive in pieces of any size; memory grows with the logarithm of the length."""

    def __init__(self) -> None:
        self._length = 0
        self._leaf = blake3(derive_key_context=LEAF)
        self._peaks: list[tuple[int, bytes]] = []

    def update(self, chunk: Bytes) -> None:
        """Takes the next bytes."""
        view = memoryview(chunk).cast("B")
        start = 0
        while start < len(view):
            piece = view[start : start + LEAF_BYTES - self._length % LEAF_BYTES]
            self._take(piece)
            start += len(piece)

    def _take(self, piece: memoryview) -> None:
        if len(piece) == LEAF_BYTES:
            self._push(_leaf(piece))
        else:
            self._leaf.update(piece)
        self._length += len(piece)
        if self._length % LEAF_BYTES == 0 and len(piece) < LEAF_BYTES:
            self._push(self._leaf.digest())
            self._leaf = blake3(derive_key_context=LEAF)

    def _push(self, digest: bytes) -> None:
        height = 0
        while self._peaks and self._peaks[-1][0] == height:
            digest = _node(self._peaks.pop()[1], digest)
            height += 1
        self._peaks.append((height, digest))

    def digest(self) -> Digest:
        """Returns the root of the bytes taken so far; more may follow."""
        peaks = [digest for _, digest in self._peaks]
        if self._length % LEAF_BYTES or not peaks:
            peaks.append(self._leaf.digest())
        top = peaks.pop()
        while peaks:
            top = _node(peaks.pop(), top)
        return _root(self._length, top)


def root(data: Bytes) -> Digest:
    """Returns the root of bytes in memory."""
    hasher = RootHasher()
    hasher.update(data)
    return hasher.digest()


def prove(data: Bytes, index: int) -> tuple[bytes, ...]:
    """Returns the 32-byte digests, from the leaf upwards, that lead from leaf `index` to the root of `data`.

    Raises PayloadRefused where there is no such leaf.
    """
    view = memoryview(data).cast("B")
    count = leaf_count(len(view))
    if not 0 <= index < count:
        raise PayloadRefused(f"there is no chunk {index} of {count}")
    level = [_leaf(view[start * LEAF_BYTES : (start + 1) * LEAF_BYTES]) for start in range(count)]
    proof = []
    while len(level) > 1:
        if index ^ 1 < len(level):
            proof.append(level[index ^ 1])
        level = _parents(level)
        index //= 2
    return tuple(proof)


def _parents(level: list[bytes]) -> list[bytes]:
    pairs = [_node(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return pairs + level[len(level) - len(level) % 2 :]


def verify(root: Digest, length: int, index: int, leaf: Bytes, proof: Sequence[bytes]) -> bool:
    """Returns whether `leaf` is chunk `index` of the payload of `length` bytes under `root`; raises on no input."""
    count = leaf_count(length)
    chunk = memoryview(leaf).cast("B")
    if not 0 <= length < 2**64 or not 0 <= index < count or any(len(digest) != 32 for digest in proof):
        return False
    if len(chunk) != min(LEAF_BYTES, length - index * LEAF_BYTES):
        return False
    top = _climb(_leaf(chunk), index, count, list(proof))
    return top is not None and _root(length, top) == root


def _climb(digest: bytes, index: int, count: int, proof: list[bytes]) -> bytes | None:
    proof.reverse()
    while count > 1:
        if index ^ 1 < count:
            if not proof:
                return None
            sibling = proof.pop()
            digest = _node(sibling, digest) if index & 1 else _node(digest, sibling)
        index, count = index // 2, (count + 1) // 2
    return None if proof else digest
