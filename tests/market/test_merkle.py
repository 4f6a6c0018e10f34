"""Merkle trees as RFC 9162 defines them: against its recursion, and the vectors of Certificate Transparency."""

import hashlib
from collections.abc import Callable

import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.features.log.merkle import (
    EMPTY,
    GrowingTree,
    MerkleTree,
    count_children,
    count_levels,
    hash_leaf,
    is_consistent,
    is_included,
    join_children,
)

INPUTS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
"""Of the first 1 to 8 inputs: certificate-transparency's merkle_tree_test.cc."""


def recursive(leaves: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, word for word."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + recursive(leaves[:k]) + recursive(leaves[k:])).digest()


@pytest.mark.parametrize("count", range(1, 9))
def test_the_roots_are_those_of_certificate_transparency(count: int) -> None:
    assert MerkleTree(INPUTS[:count]).root.hex() == ROOTS[count - 1]


@pytest.mark.parametrize("count", range(1, 34))
def test_every_leaf_is_proven_and_no_other(count: int) -> None:
    leaves = [number.to_bytes(2, "big") for number in range(count)]
    tree = MerkleTree(leaves)
    assert tree.root == recursive(leaves)
    for number, leaf in enumerate(leaves):
        path = tree.path(number)
        assert is_included(leaf, number, count, path, tree.root)
        assert not is_included(leaf + b"x", number, count, path, tree.root)
        assert not is_included(leaf, number, count, (*path, bytes(32)), tree.root)
        assert not path or not is_included(leaf, number, count, path[1:], tree.root)
        assert not any(is_included(leaf, other, count, path, tree.root) for other in range(count) if other != number)
    assert not is_included(leaves[0], count, count, tree.path(0), tree.root)


@pytest.mark.parametrize("count", range(1, 18))
def test_from_the_root_down_every_leaf_is_found(count: int) -> None:
    leaves = [bytes([number]) for number in range(count)]
    tree = MerkleTree(leaves)

    def below(level: int, place: int, expected: bytes) -> list[bytes]:
        if level == 0:
            return [expected]
        children = tree.children(level, place)
        assert len(children) == count_children(count, level, place)
        assert join_children(children) == expected
        return [leaf for number, child in enumerate(children) for leaf in below(level - 1, 2 * place + number, child)]

    assert below(count_levels(count), 0, tree.root) == [hash_leaf(leaf) for leaf in leaves]


def test_a_tree_of_nothing_has_the_root_of_the_rfc() -> None:
    assert MerkleTree([]).root == hashlib.sha256().digest()


def path(m: int, data: list[bytes]) -> list[bytes]:
    """RFC 9162, section 2.1.3.1, word for word."""
    if len(data) == 1:
        return []
    k = 1 << ((len(data) - 1).bit_length() - 1)
    if m < k:
        return [*path(m, data[:k]), recursive(data[k:])]
    return [*path(m - k, data[k:]), recursive(data[:k])]


def subproof(m: int, data: list[bytes], whole: bool) -> list[bytes]:
    """RFC 9162, section 2.1.4.1, word for word."""
    if m == len(data):
        return [] if whole else [recursive(data)]
    k = 1 << ((len(data) - 1).bit_length() - 1)
    if m <= k:
        return [*subproof(m, data[:k], whole), recursive(data[k:])]
    return [*subproof(m - k, data[k:], False), recursive(data[:k])]


SIZES = range(1, 34)
DATA = [number.to_bytes(2, "big") for number in range(max(SIZES))]


def grow(data: list[bytes]) -> GrowingTree:
    return GrowingTree(map(hash_leaf, data))


def test_a_growing_tree_has_the_roots_and_proofs_of_the_definitions_at_every_size() -> None:
    tree = grow(DATA)
    assert tree.compute_root(0) == EMPTY
    for size in SIZES:
        assert tree.compute_root(size) == recursive(DATA[:size]) == MerkleTree(DATA[:size]).root
        for at in range(size):
            proof = tree.prove_inclusion(at, size)
            assert list(proof) == path(at, DATA[:size])
            assert is_included(DATA[at], at, size, proof, tree.compute_root(size))
        for old in range(1, size):
            assert list(tree.prove_consistency(old, size)) == subproof(old, DATA[:size], True)


def test_a_later_tree_has_the_earlier_one_as_its_prefix_or_the_proof_fails() -> None:
    tree = grow(DATA)
    for size in SIZES:
        root = tree.compute_root(size)
        for old in range(size + 1):
            proof, before = tree.prove_consistency(old, size), tree.compute_root(old)
            assert is_consistent(before, old, root, size, proof)
            assert not is_consistent(before, old, root, size, [*proof, root])
            assert not is_consistent(hash_leaf(b"another"), old, root, size, proof)
            assert old == 0 or not is_consistent(before, old, hash_leaf(b"another"), size, proof)
            assert not proof or not is_consistent(before, old, root, size, proof[:-1])
            assert not is_consistent(before, old + 1, root, size, proof)
    assert not is_consistent(root, 3, EMPTY, 2, [])


def test_no_proof_makes_another_past_of_a_later_tree() -> None:
    honest, forked = grow(DATA[:20]), grow([*DATA[:7], b"another", *DATA[8:30]])
    for old in range(8, 21):
        proof = forked.prove_consistency(old)
        assert not is_consistent(honest.compute_root(old), old, forked.compute_root(), 30, proof)
        assert is_consistent(forked.compute_root(old), old, forked.compute_root(), 30, proof)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree: tree.prove_inclusion(5, 5),
        lambda tree: tree.prove_inclusion(-1),
        lambda tree: tree.prove_consistency(9, 8),
        lambda tree: tree.compute_root(len(tree) + 1),
    ],
)
def test_proofs_of_absent_leaves_are_refused(ask: Callable[[GrowingTree], object]) -> None:
    with pytest.raises(Refused):
        ask(grow(DATA))
