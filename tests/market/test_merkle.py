"""The root of a payload, against a second, recursive implementation, pinned vectors, and forgers."""

import json
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.merkle import LEAF_BYTES, RootHasher, leaf_count, prove, root, verify
from gradmarket.market.terms import Digest

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "merkle.json").read_text())
EDGES = [0, 1, LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 1]
LENGTHS = [*EDGES, *(leaves * LEAF_BYTES + extra for leaves in (2, 3, 4, 5, 6, 7, 8, 11) for extra in (0, 17))]


def content(length: int) -> bytes:
    """Bytes that differ from leaf to leaf, from blake3's extendable output."""
    return blake3(b"merkle vector").digest(length)


def reference(leaves: list[bytes]) -> bytes:
    """RFC 6962's recursion: the left subtree is the largest power of two smaller than the whole."""
    if len(leaves) == 1:
        return blake3(leaves[0], derive_key_context="gradmarket.payload.leaf").digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    both = reference(leaves[:split]) + reference(leaves[split:])
    return blake3(both, derive_key_context="gradmarket.payload.node").digest()


def chunk(data: bytes, index: int) -> bytes:
    return data[index * LEAF_BYTES : (index + 1) * LEAF_BYTES]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_root_is_the_recursive_tree_with_its_length_bound_in(length: int) -> None:
    data = content(length)
    top = reference([chunk(data, index) for index in range(leaf_count(length))])
    bound = blake3(length.to_bytes(8, "little") + top, derive_key_context="gradmarket.payload.root")
    assert root(data) == "blake3:" + bound.hexdigest()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["length"]))
def test_pinned(vector: dict[str, str]) -> None:
    data = content(int(vector["length"]))
    assert root(data) == vector["root"]
    last = leaf_count(len(data)) - 1
    assert [digest.hex() for digest in prove(data, last)] == vector["proof_of_last_leaf"]


@given(st.sampled_from(LENGTHS), st.lists(st.integers(1, 3 * LEAF_BYTES), max_size=8))
def test_any_chunking_gives_the_same_root(length: int, sizes: list[int]) -> None:
    data, hasher, start = content(length), RootHasher(), 0
    for size in [*sizes, length]:
        hasher.update(data[start : start + size])
        start += size
    assert hasher.digest() == root(data)


def test_a_digest_can_be_taken_on_the_way() -> None:
    data, hasher = content(5 * LEAF_BYTES + 9), RootHasher()
    for start in range(0, len(data), 50_000):
        assert hasher.digest() == root(data[:start])
        hasher.update(data[start : start + 50_000])
    assert hasher.digest() == root(data)


@pytest.mark.parametrize("length", LENGTHS)
def test_every_leaf_is_proven_and_in_its_own_place_only(length: int) -> None:
    data = content(length)
    top, count = root(data), leaf_count(length)
    for index in range(count):
        proof = prove(data, index)
        assert verify(top, length, index, chunk(data, index), proof)
        for other in {index - 1, index + 1, index ^ 2, index + count} - {index}:
            assert not verify(top, length, other, chunk(data, index), proof)


@given(st.sampled_from([length for length in LENGTHS if length > LEAF_BYTES]), st.data())
def test_a_forged_leaf_length_root_or_proof_is_not_proven(length: int, draw: st.DataObject) -> None:
    data = content(length)
    index = draw.draw(st.integers(0, leaf_count(length) - 1))
    leaf, proof, top = chunk(data, index), prove(data, index), root(data)
    position = draw.draw(st.integers(0, len(leaf) - 1))
    tampered = leaf[:position] + bytes([leaf[position] ^ 1]) + leaf[position + 1 :]
    assert not verify(top, length, index, tampered, proof)
    assert not verify(top, length, index, leaf[:-1], proof)
    assert not verify(top, length, index, leaf + b"\0", proof)
    assert not verify(top, length + 1, index, leaf, proof)
    assert not verify(root(data + b"\0"), length, index, leaf, proof)
    assert not verify(Digest("nonsense"), length, index, leaf, proof)
    assert not verify(top, length, index, leaf, [*proof, bytes(32)])
    assert not verify(top, length, index, leaf, proof[:-1])
    assert not verify(top, length, index, leaf, [*proof[:-1], proof[-1] + b"\0"])
    if len(set(proof)) > 1:
        assert not verify(top, length, index, leaf, proof[::-1])


def test_an_inner_node_does_not_pass_for_a_leaf() -> None:
    """Without tags the two halves of a node, read as a leaf, would prove a payload that nobody sent."""
    data = content(2 * LEAF_BYTES)
    halves = b"".join(
        blake3(chunk(data, index), derive_key_context="gradmarket.payload.leaf").digest() for index in (0, 1)
    )
    assert not verify(root(data), len(halves), 0, halves, [])
    assert root(halves) != root(data)


def test_a_tree_whose_leaves_have_other_lengths_proves_nothing() -> None:
    """Its builder commits to a short chunk in the place of a whole one."""
    short, length = b"short", 2 * LEAF_BYTES
    sibling = blake3(content(LEAF_BYTES), derive_key_context="gradmarket.payload.leaf").digest()
    top = reference([short, content(LEAF_BYTES)])
    bound = blake3(length.to_bytes(8, "little") + top, derive_key_context="gradmarket.payload.root")
    assert not verify(Digest("blake3:" + bound.hexdigest()), length, 0, short, [sibling])


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70), st.lists(st.binary(max_size=40), max_size=70))
def test_verify_never_raises(length: int, index: int, proof: list[bytes]) -> None:
    assert not verify(root(b"x"), length, index, b"y", proof)


@pytest.mark.parametrize("index", [-1, 3, 2**64])
def test_there_is_no_proof_of_a_leaf_that_is_not_there(index: int) -> None:
    with pytest.raises(PayloadRefused, match="there is no chunk"):
        prove(content(3 * LEAF_BYTES), index)


def test_a_root_hasher_keeps_no_more_than_a_path() -> None:
    hasher, piece = RootHasher(), bytes(LEAF_BYTES)
    for _ in range(1000):
        hasher.update(piece)
    kept = sum(len(digest) for _, digest in hasher._peaks)
    assert kept <= 32 * (1000).bit_length()
