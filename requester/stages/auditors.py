"""What auditors ask for and bring: an audit at a time, run blind, for who runs it is not told what was accepted."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.rules import auditing
from gradmarket.market.terms import AuditState, Digest
from gradmarket.requester.context import Context
from gradmarket.requester.store import audits
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Audit, Task
from gradmarket.requester.store.transitions import move


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is to be run again, for `seconds` this auditor's alone."""

    task: str
    job: str
    offer: dict[str, Any]
    seconds: float


def claim(context: Context, auditor: str, determinism_class: str) -> Claimed | None:
    """The oldest audit that machines of this class may run."""
    now = context.clock()
    with context.begin() as session:
        found = audits.next_due(session, determinism_class, now)
        if found is None:
            return None
        task = session.get_one(Task, found.task_id)
        seconds = float(task.offer["lease_seconds"])
        found.auditor, found.claimed_until = auditor, now + seconds
        return Claimed(task.id, task.job_id, task.offer, seconds)


def answer(context: Context, task_id: str, auditor: str, root: Digest, seconds: float) -> bool:
    """Takes the payload root that the auditor found; whether it is to run the task once more.

    The same answer to an audit that is over changes nothing; another one is a Conflict.
    """
    with context.begin() as session:
        if session.get(Audit, task_id) is None:
            raise NotFound(f"no audit of task {task_id[:80]}")
        task, audit = locked(session, Task, task_id), locked(session, Audit, task_id)
        if audit.state != AuditState.DUE:
            if audit.root != root:
                raise Conflict(f"the audit is {audit.state}")
            return False
        return _take(context, session, task, audit, auditor, root, seconds)


def _take(
    context: Context, session: Session, task: Task, audit: Audit, auditor: str, root: Digest, seconds: float
) -> bool:
    found = auditing.passes(task.root or "", root, audit.root)
    audit.runs += 1
    audit.auditor, audit.root, audit.seconds = auditor, root, seconds
    session.flush()
    if found is None:
        audit.claimed_until = context.clock() + task.offer["lease_seconds"]
        tell(session, task.job_id, "audit_unsure", context.clock(), task=task.id, runs=audit.runs)
        return True
    move(session, audit, AuditState.ANSWERED, claimed_until=None)
    ring(session, "audit")
    return False
