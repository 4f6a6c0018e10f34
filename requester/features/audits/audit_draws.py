"""Decides which accepted tasks are audited, and why. The rules are audits.auditing and audits.class_checks."""

from collections.abc import Sequence
from typing import Final

from gradmarket.market.features.audits import auditing, class_checks
from gradmarket.market.rules import assignment, secrets
from gradmarket.market.rules.strikes import BARRED_S
from gradmarket.market.terms import AuditState, Digest, Hash, ReplicaState
from gradmarket.market.wire.poll import hash_of
from requester.feature import MergeWatch
from requester.features.audits import audit_rows, copies
from requester.features.audits.audit_kind import audit_kinds_of
from requester.features.audits.audit_tables import Audit
from requester.store import jobs, strikes
from requester.store.in_hand import TaskInHand
from requester.store.review import is_reviewed
from requester.store.tables import Job, Round, Task
from requester.store.work import Work
from requester.store.workers import build_party

DRAWN: Final = "drawn"
UNPROVEN: Final = "its determinism class is not proven in this job yet"
SUSPECT: Final = "its answer diverged"
REFUTED: Final = f"{SUSPECT}, and the auditor's own did not"
REOPENED: Final = "another audit failed"
LONG: Final = "it is far longer than its round's others"


def draw_audit(work: Work, hand: TaskInHand, leaves: Sequence[Hash], now: float) -> None:
    """Draws whether the task is audited, by the offer's last link and the accepted root; orders the audit.

    Called in the transaction that accepts the task; `leaves` are those of the accepted answer. An audit that chance
    alone orders repeats two windows of the task; all others, and those of an unproven class, repeat the whole. A task
    that a plain vote decided for want of an auditor is not audited.

    The audit is certain if another task has the same root, if a paid worker was barred meanwhile, if one replica
    decided in an unproven class, or, where answers are scored, if no test has cleared the operator.
    """
    task, job = hand.task, hand.job
    if task.plan in jobs.load_spec(job).unaudited_plans:
        return
    if task.plan.referred and work.get(Audit, task.id) is not None:  # an audit had settled it before it was accepted
        return
    if copies.has_equal_answer(work, task):
        create_audit(work, task, 1.0, copies.ALIKE, now)
        return
    paid = [build_party(replica) for replica in hand.in_state(ReplicaState.PAYABLE)]
    if strikes.barred_among(work, assignment.list_answerable_keys(paid), now - BARRED_S):
        create_audit(work, task, 1.0, REOPENED, now)
        return
    link = secrets.of_task(task.secret, jobs.load_spec(job).replication.max_replicas)[-1]
    plan = task.plan
    kinds = audit_kinds_of(work)
    chosen = next(filter(None, (kind.choose_rate(work, hand, plan.audit) for kind in kinds)), None)
    proven = task.determinism_class == job.proven_class
    rate, certain = chosen or (class_checks.choose_audit_rate(plan, proven), UNPROVEN)
    if auditing.is_audit_drawn(link, task.offer_digest, hash_of(Digest(task.root or "")), rate):
        audit = create_audit(work, task, rate, DRAWN if rate == plan.audit else certain, now)
        if leaves and (plan.first_wave > 1 or proven):
            for kind in kinds:
                kind.narrow_audit(work, hand, audit, link, leaves, now)


def may_be_a_lie(job: Job, task: Task) -> bool:
    """Returns whether an audit of the diverged task convicts.

    None does in a scored job, since a single score proves nothing; nor where a plain vote decided for want of an
    auditor.
    """
    spec = jobs.load_spec(job)
    return spec.audited and not spec.verifier.scored and task.plan not in spec.unaudited_plans


def order_suspect_audit(work: Work, task: Task, now: float) -> None:
    """Orders an audit of a diverged task, in the transaction that finds the divergence.

    Without it a worker could pause a job and be paid for it, since a diverged gradient is paid and never merged.
    """
    if not task.plan.referred or work.get(Audit, task.id) is None:  # else an auditor found the same
        create_audit(work, task, 1.0, SUSPECT, now)


def reopen_audit(work: Work, task: Task, now: float) -> None:
    """Orders an audit of the whole task, since another audit of its operator failed."""
    audit = work.get(Audit, task.id)
    if audit is None:
        create_audit(work, task, 1.0, REOPENED, now)
        return
    for kind in audit_kinds_of(work):
        kind.release_blobs(work, task, audit, now)
    # an answer that is under way has the number of a run that counts no more
    fresh = {"window": None, "reason": REOPENED, "runs": audit.runs + 1}
    fresh |= {"claims": 0, "claimed_until": None, "ended_at": None}
    if audit.state == AuditState.DUE:
        for name, value in fresh.items():
            setattr(audit, name, value)
    else:
        work.set_state_now(audit, AuditState.DUE, created_at=now, **fresh)  # it had not waited since it ended


def create_audit(work: Work, task: Task, rate: float, reason: str, now: float) -> Audit:
    audit = Audit(
        task_id=task.id,
        job_id=task.job_id,
        round=task.merge_round,
        state=AuditState.DUE,
        rate=rate,
        determinism_class=task.determinism_class or "",
        reason=reason,
        scored=jobs.spec_of(work, task).verifier.scored,
        runs=0,
        auditor="",
        created_at=now,
    )
    work.add(audit)
    work.flush()
    return audit


class LengthWatch(MergeWatch):
    """`tasks`: those of the merge whose answers are long."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        unaudited = jobs.load_spec(job).unaudited_plans
        for task in audit_rows.lock_unaudited_tasks(work, self._tasks) if job.ended_at is None else ():
            if task.plan not in unaudited:
                create_audit(work, task, 1.0, LONG, now)


def watch_lengths(job: Job, used: Sequence[Task]) -> LengthWatch | None:
    """Returns the watch of a merge that has long answers. No audit of a scored job proves that an answer is wrong."""
    if not is_reviewed(job) or jobs.load_spec(job).verifier.scored:
        return None
    found = auditing.list_long_answers({task.id: task.norm for task in used if task.norm is not None})
    return LengthWatch(found) if found else None
