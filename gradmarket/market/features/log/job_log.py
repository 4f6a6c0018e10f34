"""The log of a job: the encoding of each leaf, and the checks that anybody can make. Pure.

A leaf is a record in canonical JSON, so every holder of the record can compute the leaf. Leaves are only ever appended,
and a head is signed or carried by a batch on-chain (contracts.log_heads): heads that no proof of consistency connects
are two histories, and the two heads alone prove it to anybody.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import Field

from gradmarket.market.features.log import merkle
from gradmarket.market.fields import HashField
from gradmarket.market.messages import LogHead
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash, ReplicaId, Units
from gradmarket.market.wire.evidence import PublishedView
from gradmarket.market.wire.log_proofs import LeafKind, PublishedRestart

RESTORED: Final = 2**31 - 1
"""In place of a batch's number, where a restart names the log of the restored copy."""
SKEW_S: Final = 300.0
"""Seconds by which the clocks of a service and of a receiver of its heads or receipts may differ."""


def encode_offer(offer: Hash, signature: bytes) -> bytes:
    return _encode(LeafKind.OFFER, offer, signature)


def encode_attempt(number: int, task: int, attempt: int, committed: int) -> bytes:
    """Records an attempt that is over at a task of a round, and how many workers committed to it: anybody looks for one
    that is hidden by its numbers alone."""
    return _encode(LeafKind.ATTEMPT, number, task, attempt, committed)


def encode_wave(offer: Hash, wave: int, secret: Hash, commitments: Hash, signature: bytes) -> bytes:
    return _encode(LeafKind.WAVE, offer, wave, secret, commitments, signature)


def encode_commitment(offer: Hash, worker: Address, sealed: Hash, signature: bytes) -> bytes:
    return _encode(LeafKind.COMMITMENT, offer, worker, sealed, signature)


def encode_reveal(offer: Hash, worker: Address, salt: bytes, root: Digest) -> bytes:
    return _encode(LeafKind.REVEAL, offer, worker, salt, root)


def encode_verdict(offer: Hash, worker: Address, outcome: int, signature: bytes) -> bytes:
    """The signature is over the verdict's root and price too."""
    return _encode(LeafKind.VERDICT, offer, worker, outcome, signature)


def encode_seal(offer: Hash, auditor: Address, run: int, sealed: Hash, signature: bytes) -> bytes:
    """Records that an auditor sealed an answer in this run of an audit; the signature is the auditor's."""
    return _encode(LeafKind.SEAL, offer, auditor, run, sealed, signature)


def encode_hearing(offer: Hash, one: Address, other: Address, run: int | None) -> bytes:
    """Records that a hearing of these sides began, for anybody with proof that both answered. `run`: of the task's
    audit whose panel the sides are of; None where they are its workers."""
    return _encode(LeafKind.HEARING, offer, one, other, run)


def encode_answers(offer: Hash, one: Address, other: Address, run: int | None, of_one: int, of_other: int) -> bytes:
    """Records the number of questions that each side answered, for anybody with proof of more."""
    return _encode(LeafKind.ANSWERS, offer, one, other, run, of_one, of_other)


def encode_ruling(offer: Hash, one: Address, other: Address, run: int | None, signature: bytes) -> bytes:
    """A ruling in a hearing of these sides; the signature covers the loser and the reason."""
    return _encode(LeafKind.RULING, offer, one, other, run, signature)


def encode_round(number: int, parameters: Digest, updated: Digest) -> bytes:
    return _encode(LeafKind.ROUND, number, parameters, updated)


def encode_payment(replica: ReplicaId, worker: Address, units: Units, root: Hash) -> bytes:
    return _encode(LeafKind.PAYMENT, replica, worker, units, root)


def encode_restart(batch: int, lost: LogHead, at: int) -> bytes:
    """`lost`: the head that the batch carries and the log does not lead to, or the log of the copy, and then the batch
    is RESTORED; `at`: when the service found that, in Unix time."""
    return _encode(LeafKind.RESTART, batch, lost.size, lost.root, at)


def is_ahead(tree: merkle.GrowingTree, head: LogHead) -> bool:
    """Returns whether the head covers leaves that the tree lacks, or other leaves."""
    return head.size > len(tree) or tree.compute_root(head.size) != head.root


def is_restart(leaves: Sequence[Hash], number: int, batch: int, lost: LogHead, at: int) -> bool:
    """Returns whether that leaf admits the loss of the batch's head."""
    leaf = merkle.hash_leaf(encode_restart(batch, lost, at))
    return 0 <= number < len(leaves) and leaves[number] == leaf


def find_admission(
    leaves: Sequence[Hash],
    restarts: Iterable[PublishedRestart],
    lost: LogHead,
    told_at: float,
    carried: Mapping[int, LogHead],
) -> PublishedRestart | None:
    """Returns the leaf by which the service admits that it was restored without leaves of a head received at that time.

    `leaves` lead to the newest signed head; `carried` has the heads by their batches. A restart admits only the loss of
    heads received before it, so none serves twice. It names the log that it kept, or a batch's head that it lost.
    """
    later = [one for one in restarts if one.number < lost.size and told_at <= one.at + SKEW_S]
    return next(list_restores(lost.job, leaves, later, carried), None)


def list_restores(
    job: int,
    leaves: Sequence[Hash],
    restarts: Iterable[PublishedRestart],
    carried: Mapping[int, LogHead] = MappingProxyType({}),
) -> Iterator[PublishedRestart]:
    """Yields the restarts that the leaves admit: they name the log of the copy from which the service was restored, or
    a batch's head that it lost."""
    tree = merkle.GrowingTree(leaves)
    for restart in restarts:
        if not restart.number < len(leaves):
            continue
        kept = LogHead(job, restart.number, Hash(tree.compute_root(restart.number)))
        named = kept if restart.batch == RESTORED else carried.get(restart.batch)
        if named is not None and is_restart(leaves, restart.number, restart.batch, named, restart.at):
            yield restart


def find_fork(one: LogHead, other: LogHead, proof: Sequence[bytes] | None) -> str:
    """Returns why two heads of a job's log are of two histories; empty where one is a prefix of the other.

    `proof`: the service's proof that the smaller is a prefix; None where it gave none.
    """
    old, new = sorted((one, other), key=lambda head: head.size)
    difference = (
        f"the service published root 0x{old.root.hex()} over {old.size} leaves, and 0x{new.root.hex()} over {new.size}"
    )
    if old.size == new.size:
        return "" if old.root == new.root else f"{difference}: two histories"
    if proof is None:
        return f"{difference}, and proves no connection"
    consistent = merkle.is_consistent(old.root, old.size, new.root, new.size, proof)
    return "" if consistent else f"{difference}: the second does not begin with the first"


def find_signed_fork(
    domain: Domain, signer: Address, one: tuple[LogHead, bytes], other: tuple[LogHead, bytes], leaves: Sequence[Hash]
) -> str:
    """Returns why two signed heads are evidence against their signer; any third party can check it.

    `leaves`: hashes that lead to one of the heads; empty where these and the signatures are no such evidence.
    """
    if not all(is_signed_by(domain, head, signature, signer) for head, signature in (one, other)):
        return ""
    old, new = sorted((one[0], other[0]), key=lambda head: head.size)
    tree = merkle.GrowingTree(leaves[: new.size])
    if old.size == new.size or len(tree) < new.size or tree.compute_root() != new.root:
        return find_fork(old, new, ()) if old.size == new.size else ""
    return find_fork(old, new, tree.prove_consistency(old.size))


def find_head_faults(leaves: Sequence[Hash], heads: Sequence[LogHead]) -> Iterator[str]:
    """Yields the faults of heads to which the listed leaves do not lead."""
    tree = merkle.GrowingTree(leaves)
    for head in heads:
        if head.size > len(tree):
            yield f"a head is over {head.size} leaves, and {len(tree)} are listed"
        elif tree.compute_root(head.size) != head.root:
            yield f"the first {head.size} listed leaves have another root than the head's 0x{head.root.hex()}"


def _encode(kind: LeafKind, *parts: bytes | str | int | None) -> bytes:
    shown = [f"0x{part.hex()}" if isinstance(part, bytes) else part for part in parts]
    return json.dumps([kind.value, *shown], separators=(",", ":")).encode()


class LeafProof(PublishedView):
    """That a leaf is in the log of this size."""

    number: int = Field(ge=0)
    """Its place in the log, from 0 on."""
    size: int
    """Leaves of the log that the proof is for."""
    path: tuple[HashField, ...]
    """Siblings from the leaf up (RFC 9162, 2.1.3)."""


class ConsistencyProof(PublishedView):
    """That the log of `old` leaves is a prefix of the one of `size`."""

    old: int
    """Leaves of the earlier log."""
    size: int
    """Leaves of the later one."""
    path: tuple[HashField, ...]
    """Nodes (RFC 9162, 2.1.4)."""
