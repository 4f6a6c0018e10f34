"""Merkle trees over a list of byte strings, as RFC 9162 (Certificate Transparency 2.0), section 2.1, defines them.

A leaf's hash is SHA-256(0x00 | bytes), an inner node's SHA-256(0x01 | left | right). The left half has as many leaves
as the largest power of two below their number. Built level by level that is: neighbours are joined in pairs, and a last
node without a partner goes up as it is. So a node is named by its level, leaves at 0, and its place in that.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

HASH_BYTES: Final = 32
Hashes = tuple[bytes, ...]


def hash_leaf(data: bytes) -> bytes:
    """Returns the hash of a leaf with these bytes."""
    return hashlib.sha256(b"\x00" + data).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Returns the hash of the node over two others."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def count_levels(leaves: int) -> int:
    """Returns how many levels lie above the leaves: the least n with 2^n at least their number."""
    return max(0, leaves - 1).bit_length()


def count_nodes(leaves: int, level: int) -> int:
    """Returns how many nodes a level has."""
    return -(-leaves // (1 << level))


def count_children(leaves: int, level: int, place: int) -> int:
    """Returns how many nodes of the level below a node joins: 2, or 1 where it is that one itself."""
    return min(2, count_nodes(leaves, level - 1) - 2 * place)


def join_children(children: Sequence[bytes]) -> bytes:
    """Returns the hash of the node over one or two children."""
    return hash_node(children[0], children[1]) if len(children) == 2 else children[0]


class MerkleTree:
    """The tree over all leaves, in memory: 64 bytes a leaf. Without leaves its root is SHA-256 of nothing."""

    def __init__(self, leaves: Iterable[bytes]) -> None:
        levels = [tuple(map(hash_leaf, leaves))]
        while len(levels[-1]) > 1:
            below = levels[-1]
            levels.append(tuple(join_children(below[place : place + 2]) for place in range(0, len(below), 2)))
        self._levels = levels

    def __len__(self) -> int:
        """Returns the number of leaves."""
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        return self._levels[-1][0] if len(self) else hashlib.sha256().digest()

    def children(self, level: int, place: int) -> Hashes:
        """Returns the one or two nodes below a node above the leaves."""
        return self._levels[level - 1][2 * place : 2 * place + 2]

    def path(self, leaf: int) -> Hashes:
        """Returns the proof that a leaf is in the tree, from its neighbour upwards: RFC 9162, section 2.1.3.1."""
        siblings = ((nodes, (leaf >> level) ^ 1) for level, nodes in enumerate(self._levels[:-1]))
        return tuple(nodes[place] for nodes, place in siblings if place < len(nodes))


def compute_path_root(data: bytes, leaf: int, leaves: int, path: Sequence[bytes]) -> bytes | None:
    """Returns the root that a path leads to from a leaf's bytes; None where it has not the length of such a path."""
    found, rest = hash_leaf(data), list(path)
    for level in range(count_levels(leaves)):
        place = leaf >> level
        if place ^ 1 >= count_nodes(leaves, level):
            continue
        if not rest:
            return None
        sibling = rest.pop(0)
        found = hash_node(sibling, found) if place & 1 else hash_node(found, sibling)
    return None if rest else found


def is_included(data: bytes, leaf: int, leaves: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether the tree of this root and size has these bytes as that leaf: RFC 9162, section 2.1.3.2."""
    return 0 <= leaf < leaves and compute_path_root(data, leaf, leaves, path) == root
