"""The root over a batch's records, and the proof that a record is under it (contracts/src/libraries/MerkleRoot.sol).

Leaves are keccak(record), in order; pairs are sorted as in OpenZeppelin's MerkleProof; a last node without a partner
moves up as it is. `settlePacked` stores this root itself; for `settleRooted` the requester names it.
"""

from collections.abc import Sequence

from eth_utils.crypto import keccak

from gradmarket.contracts.packing import PackedGroup, record
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.terms import Address, Hash, Units


def batch_root(groups: Sequence[PackedGroup]) -> Hash:
    """Raises Refused for an empty batch."""
    return Hash(_levels(groups)[-1][0])


def prove(groups: Sequence[PackedGroup], worker: Address, price: Units, digest: Hash) -> list[Hash]:
    """Siblings from leaf to root, as `wasAccepted` takes them; raises NotFound where the batch has no such record."""
    levels, leaf = _levels(groups), keccak(record(worker, price, digest))
    if leaf not in levels[0]:
        raise NotFound(f"a gradient of {worker} at {price} with digest {digest.hex()} in the batch")
    at, proof = levels[0].index(leaf), []
    for level in levels[:-1]:
        if at ^ 1 < len(level):
            proof.append(Hash(level[at ^ 1]))
        at //= 2
    return proof


def proves(root: Hash, worker: Address, price: Units, digest: Hash, proof: Sequence[Hash]) -> bool:
    """What `wasAccepted` answers, for a root of either kind: whether the record is under it."""
    node = keccak(record(worker, price, digest))
    for sibling in proof:
        node = _parent(node, sibling)
    return node == root


def _levels(groups: Sequence[PackedGroup]) -> list[list[bytes]]:
    """From the leaves to the root."""
    level = [keccak(record(each.worker, each.price, digest)) for each in groups for digest in each.digests]
    if not level:
        raise Refused("an empty batch")
    levels = [level]
    while len(level) > 1:
        above = [_parent(*pair) for pair in zip(level[::2], level[1::2], strict=False)]
        level = above + level[len(above) * 2 :]
        levels.append(level)
    return levels


def _parent(one: bytes, other: bytes) -> bytes:
    return keccak(min(one, other) + max(one, other))
