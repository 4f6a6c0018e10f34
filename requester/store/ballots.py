"""What replicas revealed, as the job's verifier compares it, and the thresholds that sketches were judged by."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.assignment import ALL, Mixable
from gradmarket.market.rules.projection import Sketch
from gradmarket.market.rules.verifiers import Revealed, tolerance, verifier
from gradmarket.market.rules.verifiers.tolerance import Allowed
from gradmarket.market.terms import Digest, ReplicaId, ReplicaState
from gradmarket.requester.store import calibrations, jobs
from gradmarket.requester.store.facts import layout_of
from gradmarket.requester.store.tables import Audit, Job, Replica, Task


def names(job: Job) -> list[str]:
    """Of the tensors of every answer in the job, in the order that sketches are kept in."""
    return [entry.name for entry in layout_of(job).entries]


def sketches_of(session: Session, task: Task) -> dict[str, Sketch]:
    """By replica, those that were revealed."""
    named = names(session.get_one(Job, task.job_id))
    rows = select(Replica.id, Replica.sketch).where(Replica.task_id == task.id, Replica.sketch.is_not(None))
    return {replica: sketch_packing.unpack(kept or b"", named) for replica, kept in session.execute(rows)}


def groups(session: Session, task: Task, replicas: Mapping[ReplicaId, Replica]) -> list[frozenset[ReplicaId]]:
    """Who of those that committed agree, the largest group first. The thresholds are noted on the task."""
    chosen = verifier(jobs.spec_of(session, task).verifier.name)
    made: Mapping[str, Sketch] = {}
    if chosen.SKETCHED:
        made = sketches_of(session, task)
        task.allowed = tolerance.tell(_allowed(session, task, replicas.values()))
    cast = {id_: _ballot(chosen, replica, made.get(id_)) for id_, replica in replicas.items()}
    return chosen.groups(cast, None if task.allowed is None else tolerance.read(task.allowed))


def _ballot(chosen: Any, replica: Replica, made: Sketch | None) -> Any:
    if replica.state != ReplicaState.REVEALED:
        return None
    return chosen.ballot(Revealed(Digest(replica.root or ""), replica.determinism_class, made))


def _allowed(session: Session, task: Task, replicas: Iterable[Replica]) -> Allowed:
    """For every pair of classes among the replicas."""
    known = calibrations.allowed(session, session.get_one(Job, task.job_id))
    pairs = combinations_with_replacement(sorted({replica.determinism_class for replica in replicas}), 2)
    return {classes: known[classes] for classes in pairs if classes in known}


@dataclass(frozen=True)
class RevealedBallot:
    """The sketches of a task's replicas, by their ids, and of what an audit found."""

    replicas: Mapping[str, Sketch]
    audit: Sketch | None


UNSKETCHED: Final = RevealedBallot({}, None)
"""Of a task whose roots were compared."""


def shown(session: Session, task: Task, audit: Audit | None) -> RevealedBallot:
    """As far as they are there by now."""
    if task.allowed is None:
        return UNSKETCHED
    return RevealedBallot(sketches_of(session, task), None if audit is None else _found(session, task, audit))


def _found(session: Session, task: Task, audit: Audit) -> Sketch | None:
    named = names(session.get_one(Job, task.job_id))
    return None if audit.sketch is None else sketch_packing.unpack(audit.sketch, named)


def near_audit(session: Session, task: Task, audit: Audit, replicas: Collection[Replica]) -> set[str]:
    """The replicas whose sketches are within the task's thresholds of the auditor's; none where roots were compared."""
    known = shown(session, task, audit) if replicas else UNSKETCHED
    if task.allowed is None or known.audit is None:
        return set()
    made, allowed = known.replicas, tolerance.read(task.allowed)
    found = tolerance.SketchBallot(audit.determinism_class, known.audit)
    cast = {
        each.id: tolerance.SketchBallot(each.determinism_class, made[each.id]) for each in replicas if each.id in made
    }
    return {id_ for id_, ballot in cast.items() if tolerance.near(ballot, found, allowed)}


def mixable(session: Session, job: Job) -> Mixable:
    """Pairs of classes that may work on one task of the job; none where its verifier compares bits.

    Any two where it compares nothing: a class is but a name there, and anybody can make up many.
    """
    if jobs.spec(job).verifier.scored:
        return ALL
    if not jobs.spec(job).verifier.sketched:
        return frozenset()
    return frozenset(calibrations.allowed(session, job))
