"""The revealed answers of replicas, as the job's verifier compares them, and the thresholds that judged sketches."""

from collections.abc import Mapping
from itertools import combinations_with_replacement

from sqlalchemy import select

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.assignment import ALL, Mixable
from gradmarket.market.rules.verifiers import Revealed, load_verifier, tolerance
from gradmarket.market.rules.verifiers.tolerance import Allowed
from gradmarket.market.terms import Digest, ReplicaId, ReplicaState
from requester.store import jobs
from requester.store.facts import layout_of
from requester.store.in_hand import TaskInHand
from requester.store.review import review_of
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work


def list_tensor_names(job: Job) -> list[str]:
    """Returns the names of the tensors of every answer in the job, in the order of stored sketches."""
    return [entry.name for entry in layout_of(job).entries]


def sketches_of(reader: RowReader, task: Task) -> dict[str, Sketch]:
    """Returns the task's revealed sketches by replica."""
    tensors = list_tensor_names(reader.get_one(Job, task.job_id))
    rows = select(Replica.id, Replica.sketch).where(Replica.task_id == task.id, Replica.sketch.is_not(None))
    return {
        replica: sketch_packing.unpack_sketch(packed or b"", tensors)
        for replica, packed in reader.session.execute(rows)
    }


def group_ballots(work: Work, hand: TaskInHand, replicas: Mapping[ReplicaId, Replica]) -> list[frozenset[ReplicaId]]:
    """Groups the replicas that committed by agreement, the largest group first; stores the thresholds on the task."""
    task, chosen = hand.task, load_verifier(jobs.load_spec(hand.job).verifier.name)
    sketches: Mapping[str, Sketch] = {}
    if chosen.SKETCHED:
        sketches = sketches_of(work, task)
        known = _load_thresholds(work, hand.job)
        pairs = combinations_with_replacement(sorted({replica.determinism_class for replica in replicas.values()}), 2)
        task.allowed = tolerance.encode_thresholds({classes: known[classes] for classes in pairs if classes in known})
    ballots = {
        id_: chosen.ballot(Revealed(Digest(replica.root or ""), replica.determinism_class, sketches.get(id_)))
        if replica.state == ReplicaState.REVEALED
        else None
        for id_, replica in replicas.items()
    }
    return chosen.groups(ballots, None if task.allowed is None else tolerance.parse_thresholds(task.allowed))


def list_mixable_classes(reader: RowReader, job: Job, now: float) -> Mixable:
    """Returns the pairs of classes that may work side by side in the job.

    Any two may where its verifier compares nothing: a class is only a name there, and a worker can invent many.
    Otherwise a review may name them (store.review). A job that compares bits has none.
    """
    spec = jobs.load_spec(job)
    if spec.verifier.scored or not spec.repeatable:
        return ALL
    if (named := review_of(reader).list_mixable_classes(reader, job, now)) is not None:
        return named
    return frozenset(_load_thresholds(reader, job)) if spec.verifier.sketched else frozenset()


def _load_thresholds(reader: RowReader, job: Job) -> Allowed:
    """Returns the thresholds of every pair of classes that the features know for the job (requester.feature)."""
    known: Allowed = {}
    for feature in reader.session.info["features"]:
        known = {**known, **feature.load_thresholds(reader, job)}
    return known
