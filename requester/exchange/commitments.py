"""Handles the items of a poll: commitments, reveals and returned leases. Each is accepted or refused by itself."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from gradmarket.market import signing
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.rules import faults, secrets, sketch_packing
from gradmarket.market.terms import Address, Hash, ReplicaState, TaskState
from gradmarket.market.wire import CommitmentRequest, LeaseReturn, Reveal, hash_of
from gradmarket.requester.context import Context
from gradmarket.requester.moves.ending import strike
from gradmarket.requester.moves.faults import claimed, reopen
from gradmarket.requester.store import ballots, jobs
from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Job, Replica, Task, Wave
from gradmarket.requester.store.work import RowReader, Work


class TooLate(Refused):
    """The time for it is over."""


class TooEarly(Refused):
    """The time for it has not come."""


_WHOLE: Final = (
    select(Replica, Task, Job)
    .join(Task, Task.id == Replica.task_id)
    .join(Job, Job.id == Replica.job_id)
    .where(among(Replica.id, "replicas"))
)


def at_hand(reader: RowReader, replicas: Sequence[str]) -> None:
    """Loads replicas with their tasks and jobs in one query, so that later reads by key cost none."""
    reader.session.execute(_WHOLE, {"replicas": replicas}).all()


def held(reader: RowReader, worker: Address, replica_id: str, fence: int) -> tuple[Replica, Task]:
    """Returns the worker's replica and its task; raises NotFound for another worker's, TooLate for another fence."""
    replica = reader.get(Replica, replica_id)
    if replica is None or replica.worker != worker:
        raise NotFound(f"you hold no replica {replica_id[:80]}")
    if replica.fence != fence:
        raise TooLate("this lease has been given anew: the fence is another")
    return replica, reader.get_one(Task, replica.task_id)


def commit(context: Context, work: Work, worker: Address, said: CommitmentRequest) -> Task | None:
    """Moves the replica from LEASED to COMMITTED; returns the task, whose wave may close now.

    Returns None if the same commitment was made before; raises Conflict if another one was.
    """
    replica, task = held(work, worker, said.replica, said.fence)
    if replica.sealed is not None:
        if replica.sealed != said.sealed:
            raise Conflict("another commitment was made for this replica")
        return None
    now = context.clock()
    if replica.state != ReplicaState.LEASED or now > replica.lease_until:
        raise TooLate(f"the lease is over ({replica.state})")
    struct = said.struct(Hash(task.offer_digest), worker)
    signing.check(context.domain, struct, said.signature, worker)
    work.move(
        replica,
        ReplicaState.COMMITTED,
        sealed=said.sealed,
        signature=said.signature,
        committed_at=now,
        compute_seconds=said.compute_seconds,
    )
    return task


def reveal(context: Context, work: Work, worker: Address, said: Reveal) -> Task | None:
    """Moves the replica from COMMITTED to REVEALED if salt and root open its seal, else to REJECTED, keeping both.

    Returns the task, which may be judged now, or None if the same was revealed before.
    """
    replica, task = held(work, worker, said.replica, said.fence)
    if replica.salt is not None:
        if (replica.salt, replica.root) != (said.salt, said.root) or not _same_sketch(work, replica, said):
            raise Conflict("something else was revealed for this replica")
        return None
    if replica.state == ReplicaState.COMMITTED and task.state != TaskState.REVEALING:
        raise TooEarly("the wave is not closed")
    if replica.state != ReplicaState.COMMITTED:
        raise TooLate(f"the replica is {replica.state}")
    sketch = _sketched(context, work, task, replica, said)
    opened = secrets.seal(Hash(task.offer_digest), worker, said.salt, hash_of(said.root)) == replica.sealed
    state = ReplicaState.REVEALED if opened else ReplicaState.REJECTED
    reason = "" if opened else "salt and root do not open the commitment"
    work.move(replica, state, salt=said.salt, root=said.root, reason=reason, **sketch)
    return task


def _same_sketch(reader: RowReader, replica: Replica, said: Reveal) -> bool:
    if said.sketch is None or replica.sketch_signature is None:
        return (said.sketch is None) == (replica.sketch_signature is None)
    names = ballots.names(reader.get_one(Job, replica.job_id))
    numbers = said.sketch.numbers
    return numbers.keys() == set(names) and b"".join(numbers[name] for name in names) == replica.sketch


def _sketched(context: Context, reader: RowReader, task: Task, replica: Replica, said: Reveal) -> dict[str, bytes]:
    """Checks the sketch and its signature, and returns its columns to store.

    Raises Refused if the sketch is missing, not wanted, of other tensors or of another class.
    """
    required = jobs.spec_of(reader, task).verifier.sketched
    if said.sketch is None or not required:
        if required != (said.sketch is not None):
            raise Refused(f"this job compares {'sketches: reveal one too' if required else 'roots: reveal no sketch'}")
        return {}
    names = ballots.names(reader.get_one(Job, task.job_id))
    if differing := said.sketch.numbers.keys() ^ set(names):
        raise Refused(f"the sketch has other tensors than an answer: {', '.join(sorted(differing)[:5])[:200]}")
    if said.sketch.determinism_class != replica.determinism_class:
        raise Refused(f"the lease was given to class {replica.determinism_class}, and the sketch is of another")
    seed, worker = Hash(reader.get_one(Wave, (task.id, task.wave)).seed), Address(replica.worker)
    signing.check(
        context.domain, said.sketch.struct(Hash(task.offer_digest), worker, seed), said.sketch.signature, worker
    )
    return {
        "sketch": sketch_packing.pack(sketch_packing.read(said.sketch.numbers), names),
        "sketch_signature": said.sketch.signature,
    }


def give_up(context: Context, work: Work, worker: Address, said: LeaseReturn) -> None:
    """Moves the replica from LEASED to ABANDONED or ERROR, and opens its place again.

    It costs a strike: otherwise workers could choose with whom they share a task by returning leases.
    """
    replica, task = held(work, worker, said.replica, said.fence)
    if replica.state != ReplicaState.LEASED:
        return
    if said.failed and said.fault is not None:
        work.move(replica, ReplicaState.ERROR, reason=faults.described(said.fault))
        claimed(context, work, task, replica, said.fault)
        return
    work.move(replica, ReplicaState.ERROR if said.failed else ReplicaState.ABANDONED, reason=said.reason)
    strike(context, work, task, [replica])
    reopen(work, task)
