"""An accepted task is drawn for an audit or not; the auditor's answer makes it stand, or revokes it.

What diverged is audited for certain: a job that a lie paused goes on by itself.

A revoked gradient is not merged, or what was merged is taken back (stages.aftermath). Whoever was paid for it keeps
what a voucher promised, and loses its reputation and further work; whoever was rejected for the right answer is paid.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from gradmarket.market.messages import Outcome
from gradmarket.market.rules import classes, operators
from gradmarket.market.terms import AuditState, Digest, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire import hash_of
from gradmarket.requester.context import Context
from gradmarket.requester.moves import blob_cleanup, calibrating, copies, resume, scoring, task_attempts, verdicts
from gradmarket.requester.moves.audit_draws import REOPENED, order, replicas_in
from gradmarket.requester.moves.ending import call_off
from gradmarket.requester.store import accusations, audits, ballots, earned_rows, jobs, reputations
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.session import notify, one_at_a_time
from gradmarket.requester.store.tables import Audit, Job, Replica, Round, Task
from gradmarket.requester.store.transitions import move, move_now
from gradmarket.requester.store.workers import party

TOPIC = "audit"


def ready(session: Session, _now: float) -> Sequence[str]:
    return audits.answered(session)


def run(context: Context, task_id: str) -> float | None:
    """Judges one answer; while the task's round is being merged it waits, for a merge is whole or not at all.

    One at a time: a failed audit reaches into other jobs, and two of them would wait for each other.
    """
    now = context.clock()
    with context.begin() as session:
        one_at_a_time(session, TOPIC)
        its_job = session.get_one(Task, task_id).job_id
        job, task = locked(session, Job, its_job), locked(session, Task, task_id)
        audit, row = session.get_one(Audit, task_id), session.get_one(Round, (job.id, task.round))
        if audit.state != AuditState.ANSWERED:
            return None
        if row.state == RoundState.MERGING and job.ended_at is None:
            return context.settings.sweep_s
        diverged = task.state == TaskState.DIVERGED
        paid = replicas_in(session, task, ReplicaState.DIVERGED if diverged else ReplicaState.PAYABLE)
        if _right(session, task, audit, now):
            _pass(session, job, task, audit, paid, now)
            if not diverged:
                calibrating.confirm(session, job, audit, now)
        else:
            wrong = _wrong(session, task, audit, paid)
            _fail(context, session, job, task, audit, wrong, now)
            _consequences(context, session, job, row, task, now)
            copies.convicted(session, task, [replica.worker for replica in wrong], now)
            if diverged:
                resume.after_a_lie(context, session, job)
        for other in copies.followed(session, task):
            order(session, other, 1.0, copies.ALIKE, now)
        notify(session, "aftermath", "plan", "aggregate", "settle")
    if task.state == TaskState.REVOKED and task.payload:
        blob_cleanup.payload(context, Digest(task.payload))
    return None


def _right(session: Session, task: Task, audit: Audit, now: float) -> bool:
    return not scoring.convicts(session, audit, now) if audit.scored else audit.root == task.root


def _outvoted(session: Session, task: Task, audit: Audit) -> list[Replica]:
    """Rejected by a verdict for the auditor's answer; whose salt did not open its seal has committed to no such one."""
    rejected = replicas_in(session, task, ReplicaState.REJECTED)
    judged = [each for each in rejected if each.outcome == Outcome.REJECTED and each.verdict_root != each.root]
    near = ballots.near_audit(session, task, audit, judged)
    return [replica for replica in judged if replica.root == audit.root or replica.id in near]


def _wrong(session: Session, task: Task, audit: Audit, paid: list[Replica]) -> list[Replica]:
    """Of those that were paid: not who answered in its own class what the auditor did, though a liar was near it."""
    near = ballots.near_audit(session, task, audit, paid)
    return [replica for replica in paid if replica.root == task.root or replica.id not in near]


def _pass(session: Session, job: Job, task: Task, audit: Audit, paid: list[Replica], now: float) -> None:
    """A score that does not convict proves nothing: neither a record nor a class."""
    move_now(session, audit, AuditState.PASSED, ended_at=now)
    if not audit.scored:
        confirmed = [replica.operator for replica in paid if replica.root == audit.root]
        reputations.passed(session, confirmed, audit.determinism_class, now)
        _prove(session, job, audit, now)
    tell(session, task.job_id, "audit_passed", now, task=task.id, round=task.round, runs=audit.runs)


def _prove(session: Session, job: Job, audit: Audit, now: float) -> None:
    """The job's class, once enough operators' answers were confirmed."""
    own = audit.determinism_class == job.determinism_class
    confirmed = audits.confirmed(session, audit) if own and job.proven_class != job.determinism_class else ()
    if classes.proven(confirmed):
        job.proven_class = audit.determinism_class
        found = {"determinism_class": job.proven_class, "operators": sorted({each.operator for each in confirmed})}
        tell(session, job.id, "class_proven", now, **found)


def _fail(
    context: Context, session: Session, job: Job, task: Task, audit: Audit, wrong: list[Replica], now: float
) -> None:
    """The task is revoked, who answers for `wrong` loses its record, and who answered as the auditor did is paid."""
    move_now(session, audit, AuditState.FAILED, ended_at=now)
    reason = "the scores of its operator convict it" if audit.scored else "an audit found another gradient"
    move(task, TaskState.REVOKED, reason=reason)
    keys = sorted(operators.answerable(map(party, wrong)))
    others = audits.spared(session, keys)  # tasks are locked before accounts and records
    reputations.failed(session, keys, audit.determinism_class, now)
    lost = earned_rows.revoke(session, task, wrong)
    accusations.bring(session, job, task, wrong, audit.root or "", now)
    right = _outvoted(session, task, audit)
    for replica in right:
        _vindicate(context, session, job, task, replica, now)
    confirmed = [replica.operator for replica in right if replica.root == audit.root]
    reputations.passed(session, confirmed, audit.determinism_class, now)
    for other in others:
        order(session, other, 1.0, REOPENED, now)
    found = {"workers": [replica.worker for replica in wrong], "vindicated": [replica.worker for replica in right]}
    told = {"round": task.round, "runs": audit.runs, "used": task.used, "lost": lost}
    tell(session, job.id, "audit_failed", now, task=task.id, **told, **found)


def _vindicate(context: Context, session: Session, job: Job, task: Task, replica: Replica, now: float) -> None:
    """It was outvoted and right: the verdict is signed anew, and the price is its own as if it had won."""
    reason = "an audit found that it was right"
    verdicts.sign(
        context, session, task, replica, ReplicaState.PAYABLE, Outcome.ACCEPTED, replica.root, reason, heard=False
    )
    earned_rows.lock(session, [(job.id, replica.worker)])
    account = earned_rows.earn(session, task, replica, hash_of(Digest(replica.root or "")), now)
    account.voucher_signature = context.voucher(job, account)


def _consequences(context: Context, session: Session, job: Job, row: Round, task: Task, now: float) -> None:
    """An open round has the task done again; a merged one is taken back, left as it is, or left to the requester."""
    chosen = jobs.spec(job).on_failure
    if row.state == RoundState.OPEN:
        task_attempts.reissue(context, session, job, task, now)
    elif task.used and chosen == "replay" and job.ended_at is None:
        job.rewind_to = row.number if job.rewind_to is None else min(job.rewind_to, row.number)
        latest = jobs.latest_round(session, job.id)
        for number in range(row.number + 1, latest.number + 1 if latest else 0):
            call_off(context, session, job.id, number)
    elif task.used and chosen == "pause" and job.state == JobState.RUNNING:
        move_now(session, job, JobState.PAUSED, reason=f"an audit found a wrong gradient in round {task.round}")
        tell(session, job.id, "paused", now, reason=job.reason)
