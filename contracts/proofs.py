"""Merkle roots of batches and proofs that a record is under one (contracts/src/libraries/MerkleRoot.sol).

Leaves are keccak(record), in order; pairs are sorted as in OpenZeppelin's MerkleProof; a last node without a partner
moves up unchanged. `settlePacked` computes and stores this root; for `settleRooted` the requester sends it.
"""

from collections.abc import Sequence

from eth_utils.crypto import keccak

from contracts.packing import PackedGroup, pack_record
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.terms import Address, Hash, Units


def batch_root(groups: Sequence[PackedGroup]) -> Hash:
    """Returns the batch's root; raises Refused for an empty batch."""
    return Hash(_build_tree_levels(groups)[-1][0])


def build_proof(groups: Sequence[PackedGroup], worker: Address, price: Units, digest: Hash) -> list[Hash]:
    """Returns the siblings from leaf to root, as `wasAccepted` takes them; raises NotFound for an unknown record."""
    levels, leaf = _build_tree_levels(groups), keccak(pack_record(worker, price, digest))
    if leaf not in levels[0]:
        raise NotFound(f"a gradient of {worker} at {price} with digest {digest.hex()} in the batch")
    at, proof = levels[0].index(leaf), []
    for level in levels[:-1]:
        if at ^ 1 < len(level):
            proof.append(Hash(level[at ^ 1]))
        at //= 2
    return proof


def is_record_proven(root: Hash, worker: Address, price: Units, digest: Hash, proof: Sequence[Hash]) -> bool:
    """Returns whether the record is under the root, as `wasAccepted` does, for a root of either kind."""
    node = keccak(pack_record(worker, price, digest))
    for sibling in proof:
        node = _compute_parent_hash(node, sibling)
    return node == root


def _build_tree_levels(groups: Sequence[PackedGroup]) -> list[list[bytes]]:
    """Returns the tree's levels, from the leaves to the root; raises Refused for an empty batch."""
    level = [keccak(pack_record(row.worker, row.price, digest)) for row in groups for digest in row.digests]
    if not level:
        raise Refused("an empty batch")
    levels = [level]
    while len(level) > 1:
        above = [_compute_parent_hash(*pair) for pair in zip(level[::2], level[1::2], strict=False)]
        level = above + level[len(above) * 2 :]
        levels.append(level)
    return levels


def _compute_parent_hash(one: bytes, other: bytes) -> bytes:
    return keccak(min(one, other) + max(one, other))
