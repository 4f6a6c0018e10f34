"""Handles the items of a poll: commitments, reveals and returned leases. Each is accepted or refused by itself."""

from typing import TypeVar

from gradmarket.market import signing
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.rules import faults, secrets, sketch_packing
from gradmarket.market.terms import Address, ReplicaState, TaskState
from gradmarket.market.wire.poll import Answer, CommitmentRequest, LeaseReturn, Reveal, hash_of
from requester.context import Context
from requester.moves import waves
from requester.moves.ending import strike_replicas
from requester.moves.faults import record_fault, reopen_task
from requester.store import ballots, jobs
from requester.store.in_hand import OwnReplica, ReplicaInHand
from requester.store.tables import Task
from requester.store.work import Work


class TooLate(Refused):
    """The time for the item is over."""


class TooEarly(Refused):
    """The time for the item has not come."""


Own = TypeVar("Own", ReplicaInHand, OwnReplica)


def check_own_replica(own: Own | None, worker: Address, replica_id: str, fence: int) -> Own:
    """Returns the worker's replica with its rows; raises NotFound for another's, TooLate for another fence."""
    if own is None or own.replica.worker != worker:
        raise NotFound(f"this worker holds no replica {replica_id[:80]}")
    if own.replica.fence != fence:
        raise TooLate("the lease was assigned again: its fence has changed")
    return own


def record_answer(
    context: Context, work: Work, own: ReplicaInHand, answer: Answer, signature_checked: bool = False
) -> bool:
    """Commits, closes the wave over this commitment alone, and reveals; the task may be judged now.

    Returns False for a repeated answer. Raises Refused where other workers vote on the task.
    """
    if not jobs.load_spec(own.hand.job).decided_alone:
        raise Refused("several workers vote on this task: commit, and reveal once its wave is closed")
    if record_commitment(context, work, own, answer.commitment, signature_checked):
        waves.handle_commitments(context, work, [own.hand])
    return record_reveal(context, work, own, answer.reveal())


def check_signature(context: Context, task: Task, worker: Address, commitment: CommitmentRequest) -> None:
    """Raises SignatureRefused unless the worker signed the commitment."""
    signing.check_struct_signature(
        context.domain, commitment.struct(task.offer_digest, worker), commitment.signature, worker
    )


def record_commitment(
    context: Context, work: Work, own: ReplicaInHand, commitment: CommitmentRequest, signature_checked: bool = False
) -> bool:
    """Moves the replica from LEASED to COMMITTED; the task's wave may close now.

    Returns False if the same commitment was made before; raises Conflict if another one was.
    """
    replica, worker = own.replica, own.replica.worker
    if replica.sealed is not None:
        if replica.sealed != commitment.sealed:
            raise Conflict("another commitment was made for this replica")
        return False
    now = context.clock()
    if replica.state != ReplicaState.LEASED or now > replica.lease_until:
        raise TooLate(f"the lease is over ({replica.state})")
    # whether the wave has all its commitments: with a backup, more workers hold a lease than it needs
    committed = [one for one in own.hand.in_state(ReplicaState.COMMITTED) if one.wave == own.replica.wave]
    if own.hand.task.backups > 0 and len(committed) >= own.hand.task.wave_size:
        raise TooLate("the task has as many answers as it needs already")
    if not signature_checked:
        check_signature(context, own.hand.task, worker, commitment)
    work.move(
        replica,
        ReplicaState.COMMITTED,
        sealed=commitment.sealed,
        signature=commitment.signature,
        committed_at=now,
        compute_seconds=commitment.compute_seconds,
    )
    return True


def record_reveal(context: Context, work: Work, own: ReplicaInHand, reveal: Reveal) -> bool:
    """Moves the replica from COMMITTED to REVEALED if salt and root open its seal, else to REJECTED, keeping both.

    The task may be judged now. Returns False if the same was revealed before.
    """
    replica, task, worker = own.replica, own.hand.task, own.replica.worker
    if replica.salt is not None:
        sketched = replica.sketch_signature is not None
        same = (replica.salt, replica.root) == (reveal.salt, reveal.root) and sketched == (reveal.sketch is not None)
        if same and reveal.sketch is not None:
            names, numbers = ballots.list_tensor_names(own.hand.job), reveal.sketch.numbers
            same = numbers.keys() == set(names) and b"".join(numbers[name] for name in names) == replica.sketch
        if not same:
            raise Conflict("another answer was revealed for this replica")
        return False
    if replica.state == ReplicaState.COMMITTED and task.state != TaskState.REVEALING:
        raise TooEarly("the wave is not closed")
    if replica.state != ReplicaState.COMMITTED:
        raise TooLate(f"the replica is {replica.state}")
    sketch = _check_sketch(context, own, reveal)
    opened = secrets.seal_commitment(task.offer_digest, worker, reveal.salt, hash_of(reveal.root)) == replica.sealed
    state = ReplicaState.REVEALED if opened else ReplicaState.REJECTED
    reason = "" if opened else "salt and root do not open the commitment"
    work.move(replica, state, salt=reveal.salt, root=reveal.root, reason=reason, **sketch)
    return True


def _check_sketch(context: Context, own: ReplicaInHand, reveal: Reveal) -> dict[str, bytes]:
    """Checks the sketch and its signature, and returns its columns to store.

    Raises Refused if the sketch is missing, not wanted, of other tensors or of another class.
    """
    replica, hand = own.replica, own.hand
    required = jobs.load_spec(hand.job).verifier.sketched
    if reveal.sketch is None or not required:
        if required != (reveal.sketch is not None):
            raise Refused(f"this job compares {'sketches: reveal one too' if required else 'roots: reveal no sketch'}")
        return {}
    names = ballots.list_tensor_names(hand.job)
    if differing := reveal.sketch.numbers.keys() ^ set(names):
        raise Refused(f"the sketch has other tensors than an answer: {', '.join(sorted(differing)[:5])[:200]}")
    if reveal.sketch.determinism_class != replica.determinism_class:
        raise Refused(f"the lease was given to class {replica.determinism_class}, and the sketch is of another")
    worker = replica.worker
    struct = reveal.sketch.struct(hand.task.offer_digest, worker, hand.wave_seed)
    signing.check_struct_signature(context.domain, struct, reveal.sketch.signature, worker)
    return {
        "sketch": sketch_packing.pack_sketch(sketch_packing.decode_sketch(reveal.sketch.numbers), names),
        "sketch_signature": reveal.sketch.signature,
    }


def return_lease(context: Context, work: Work, own: ReplicaInHand, returned: LeaseReturn) -> bool:
    """Moves the replica from LEASED to ABANDONED or ERROR, and opens its place again; False if it is not leased.

    It costs a strike: otherwise workers could choose their partners in a task by returning leases.
    """
    replica, task = own.replica, own.hand.task
    if replica.state != ReplicaState.LEASED:
        return False
    alone = not jobs.load_spec(own.hand.job).repeatable  # one holder's word must not stop the job
    if returned.failed and returned.fault is not None and not alone:
        work.move(replica, ReplicaState.ERROR, reason=faults.describe_fault(returned.fault))
        record_fault(context, work, own.hand, replica, returned.fault)
        return True
    work.move(replica, ReplicaState.ERROR if returned.failed else ReplicaState.ABANDONED, reason=returned.reason)
    strike_replicas(context, work, task, [replica])
    reopen_task(context, work, own.hand)
    return True
