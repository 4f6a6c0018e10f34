"""Merkle trees over a list of byte strings, as RFC 9162 (Certificate Transparency 2.0), section 2.1, defines them.

A leaf's hash is SHA-256(0x00 | bytes), an inner node's SHA-256(0x01 | left | right). The left half has as many leaves
as the largest power of two below their number. Built level by level that is: neighbours are joined in pairs, and a last
node without a partner goes up as it is. So a node is named by its level, leaves at 0, and its place in that.
`GrowingTree` also has the roots of its past, each of which it proves to be a prefix of a later one (2.1.4).
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from gradmarket.market.errors import Refused

HASH_BYTES: Final = 32
EMPTY: Final = hashlib.sha256().digest()
"""The root over no leaves."""
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
        return self._levels[-1][0] if len(self) else EMPTY

    def children(self, level: int, place: int) -> Hashes:
        """Returns the one or two nodes below a node above the leaves."""
        return self._levels[level - 1][2 * place : 2 * place + 2]

    def path(self, leaf: int) -> Hashes:
        """Returns the proof that a leaf is in the tree, from its neighbour upwards: RFC 9162, section 2.1.3.1."""
        siblings = ((nodes, (leaf >> level) ^ 1) for level, nodes in enumerate(self._levels[:-1]))
        return tuple(nodes[place] for nodes, place in siblings if place < len(nodes))


def climb_path(found: bytes, leaf: int, leaves: int, path: Sequence[bytes]) -> bytes | None:
    """Returns the root that a path leads to from a leaf's hash; None where the path has the wrong length."""
    rest = list(path)
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
    """Returns whether the tree of this root and size has these bytes as that leaf: RFC 9162, section 2.1.3.2."""
    return 0 <= leaf < leaves and climb_path(hash_leaf(data), leaf, leaves, path) == root


class GrowingTree:
    """A tree that only grows. Appending costs a hash on average, a root or proof at any size some log2(n) of them."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        """`leaves`: hashes of leaves (`hash_leaf`), in order."""
        self._levels: list[list[bytes]] = [[]]
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0])

    @property
    def leaves(self) -> Sequence[bytes]:
        """The hashes of the leaves."""
        return self._levels[0]

    def append(self, leaf: bytes) -> None:
        node, height = leaf, 0
        self._levels[0].append(leaf)
        while len(self._levels[height]) % 2 == 0:
            node = hash_node(self._levels[height][-2], node)
            height += 1
            if height == len(self._levels):
                self._levels.append([])
            self._levels[height].append(node)

    def compute_root(self, size: int | None = None) -> bytes:
        """Returns the root over the first `size` leaves, all of them by default. Raises Refused for more than all."""
        return self._compute_node(0, self._check_size(size))

    def prove_inclusion(self, index: int, size: int | None = None) -> Hashes:
        """Returns PATH(index, D_size): siblings from the leaf up. Raises Refused where there is no such leaf."""
        size = self._check_size(size)
        if not 0 <= index < size:
            raise Refused(f"a tree of {size} leaves has no leaf {index}")
        start, end, path = 0, size, list[bytes]()
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._compute_node(middle, end))
                end = middle
            else:
                path.append(self._compute_node(start, middle))
                start = middle
        return tuple(path[::-1])

    def prove_consistency(self, old: int, size: int | None = None) -> Hashes:
        """Returns PROOF(old, D_size): that the first `old` leaves are a prefix. Raises Refused for old > size."""
        size = self._check_size(size)
        if not 0 <= old <= size:
            raise Refused(f"a tree of {size} leaves never had {old}")
        if old in {0, size}:
            return ()
        start, end, path = 0, size, list[bytes]()
        while end != old:
            middle = start + _split(end - start)
            if old <= middle:
                path.append(self._compute_node(middle, end))
                end = middle
            else:
                path.append(self._compute_node(start, middle))
                start = middle
        if start:
            path.append(self._compute_node(start, end))
        return tuple(path[::-1])

    def _check_size(self, size: int | None) -> int:
        if size is None:
            return len(self)
        if not 0 <= size <= len(self):
            raise Refused(f"the tree has {len(self)} leaves, not {size}")
        return size

    def _compute_node(self, start: int, end: int) -> bytes:
        """Returns MTH(D[start:end]), whose start is a multiple of every power of two that it is split at."""
        count = end - start
        if count == 0:
            return EMPTY
        if count & (count - 1) == 0:
            height = count.bit_length() - 1
            return self._levels[height][start >> height]
        middle = start + _split(count)
        return hash_node(self._compute_node(start, middle), self._compute_node(middle, end))


def is_consistent(old_root: bytes, old: int, root: bytes, size: int, proof: Sequence[bytes]) -> bool:
    """Returns whether `proof` shows the tree of `old` leaves to be a prefix of the one of `size` (2.1.4.2)."""
    if not 0 <= old <= size:
        return False
    if old == size:
        return not proof and old_root == root
    if old == 0:
        return not proof and old_root == EMPTY
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    place, last = old - 1, size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    before = after = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            before, after = hash_node(sibling, before), hash_node(sibling, after)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            after = hash_node(after, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def _split(count: int) -> int:
    """Returns the largest power of two below `count`, which is above 1."""
    return 1 << (count - 1).bit_length() - 1
