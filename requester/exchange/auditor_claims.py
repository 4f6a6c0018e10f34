"""What auditors ask for and bring: an audit at a time, run blind, for who runs it is not told what was accepted.

Where none is due in their class, a task to calibrate with: one that passed its audit in another. An audit that is
scored cannot be blind: its auditor is told the accepted payload, and answers with its own root nevertheless.
"""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from gradmarket.market.audit_wire import AuditAnswer
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.rules import auditing, sketch_packing
from gradmarket.market.terms import AuditState, Hash
from gradmarket.requester.context import Context
from gradmarket.requester.moves import calibrating, scoring
from gradmarket.requester.store import audits, ballots
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.session import notify
from gradmarket.requester.store.tables import Audit, Job, Task, Wave
from gradmarket.requester.store.transitions import move_now


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is to be run again, first as run `run`; for `seconds` nobody else is asked.

    With a `wave_seed`: the answer has a sketch under it. `calibrates`: it passed its audit, in another class.
    With a `score`: the score of that payload is asked for too.
    """

    task: str
    job: str
    offer: dict[str, Any]
    run: int
    seconds: float
    wave_seed: Hash | None = None
    calibrates: bool = False
    score: scoring.ScoringTask | None = None


def claim(context: Context, auditor: str, determinism_class: str) -> Claimed | None:
    """The oldest audit that machines of this class may run; where there is none, a task to calibrate with."""
    now = context.clock()
    with context.begin() as session:
        found = audits.next_due(session, determinism_class, now)
        if found is None:
            run = calibrating.claim(session, auditor, determinism_class, now)
            return None if run is None else _claimed(session, session.get_one(Task, run.task_id), run.runs, True)
        task = session.get_one(Task, found.task_id)
        found.auditor, found.claimed_until = auditor, now + task.offer["lease_seconds"]
        score = scoring.wanted(session, task) if found.scored else None
        return replace(_claimed(session, task, found.runs), score=score)


def _claimed(session: Session, task: Task, runs: int, calibrates: bool = False) -> Claimed:
    seconds, seed = float(task.offer["lease_seconds"]), _wave_seed(session, task)
    return Claimed(task.id, task.job_id, task.offer, runs, seconds, seed, calibrates)


def _wave_seed(session: Session, task: Task) -> Hash | None:
    """Under which its replicas sketched; none where their roots were compared."""
    if task.allowed is None:
        return None
    return Hash(session.get_one(Wave, (task.id, task.wave)).seed)


def answer(context: Context, task_id: str, said: AuditAnswer) -> bool:
    """Takes the payload root that a run found; whether the auditor is to run the task once more.

    The same answer of a run that was taken changes nothing. Another one is a Conflict, and so is a run of anybody but
    who claimed the audit last. Raises Refused where a score is missing, or nobody asked for one.
    """
    with context.begin() as session:
        if session.get(Audit, task_id) is None:
            raise NotFound(f"no audit of task {task_id[:80]}")
        task, audit = locked(session, Task, task_id), locked(session, Audit, task_id)
        if audit.state != AuditState.DUE or said.run < audit.runs:
            if audit.root != said.root:
                raise Conflict(f"the audit is {audit.state}, and its run {audit.runs - 1} found something else")
            return audit.state == AuditState.DUE
        if (said.auditor, said.run) != (audit.auditor, audit.runs):
            raise Conflict(f"run {audit.runs} of the audit is another auditor's: claim one")
        return _take(context, session, task, audit, said)


def _take(context: Context, session: Session, task: Task, audit: Audit, said: AuditAnswer) -> bool:
    found = audit.scored or auditing.passes(task.root or "", said.root, audit.root)
    scoring.take(session, task, audit, said.score)
    audit.sketch = _sketch(session, task, said)
    audit.runs += 1
    audit.root, audit.seconds = said.root, said.seconds
    session.flush()
    if found is None:
        audit.claimed_until = context.clock() + task.offer["lease_seconds"]
        return True  # told with the audit's end: whoever read it now would know that it is audited
    move_now(session, audit, AuditState.ANSWERED, claimed_until=None)
    notify(session, "audit")
    return False


def _sketch(session: Session, task: Task, said: AuditAnswer) -> bytes | None:
    """As it is kept. Raises Refused where the task's replicas were compared otherwise, or it is of other tensors."""
    names = None if task.allowed is None else ballots.names(session.get_one(Job, task.job_id))
    told = None if said.sketch is None else said.sketch.keys()
    if told != (None if names is None else set(names)):
        raise Refused("the answer has no sketch of just the tensors that an answer in this job has")
    return (
        None if said.sketch is None or names is None else sketch_packing.pack(sketch_packing.read(said.sketch), names)
    )
