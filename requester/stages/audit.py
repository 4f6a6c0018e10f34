"""An accepted task is drawn for an audit or not; the auditor's answer makes it stand, or revokes it.

What diverged is audited for certain: a job that a lie paused goes on by itself.

A revoked gradient is not merged, or what was merged is taken back (stages.aftermath). Whoever was paid for it keeps
what a voucher promised, and loses its reputation and further work; whoever was rejected for the right answer is paid.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.market.messages import Outcome
from gradmarket.market.rules import auditing, classes, operators, secrets
from gradmarket.market.rules.replication import Plan
from gradmarket.market.rules.reputation import BARRED_S
from gradmarket.market.terms import AuditState, Digest, Hash, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire import hash_of
from gradmarket.requester.context import Context
from gradmarket.requester.stages import calibrating, copies, forget, plan, resume, scoring, verdicts
from gradmarket.requester.stages.ending import call_off
from gradmarket.requester.store import accusations, audits, ballots, jobs, money, reputations
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.locks import locked
from gradmarket.requester.store.session import one_at_a_time, ring
from gradmarket.requester.store.tables import Audit, Job, Replica, Round, Task
from gradmarket.requester.store.transitions import move, move_now
from gradmarket.requester.store.workers import party

TOPIC = "audit"
DRAWN: Final = "drawn"
UNPROVEN: Final = "its determinism class is not proven in this job yet"
UNCLEARED: Final = "no whole test has found its operator honest in this job yet"
SUSPECT: Final = "its answer diverged"
REOPENED: Final = "another audit of the same operator failed"


def draw(session: Session, job: Job, task: Task, now: float) -> None:
    """For the transaction that accepts the task: the offer's last link and the accepted root decide.

    Where another task has that root already, a worker was barred while it was at work, or one replica decides in a
    class unproven, nothing is left to chance; nor where answers are scored, for an operator that no test has cleared.
    """
    if copies.pointed(session, task):
        _order(session, task, 1.0, copies.ALIKE, now)
        return
    paid = [party(replica) for replica in _replicas(session, task, ReplicaState.PAYABLE)]
    if reputations.barred_among(session, operators.answerable(paid), now - BARRED_S):
        _order(session, task, 1.0, REOPENED, now)
        return
    link = secrets.of_task(Hash(task.secret), jobs.spec(job).replication.max_replicas)[-1]
    plan = Plan(**task.plan)
    if jobs.spec(job).verifier.scored:
        rate, certain = scoring.rate(session, task, plan.audit), UNCLEARED
    else:
        rate, certain = classes.rate(plan, task.determinism_class == job.proven_class), UNPROVEN
    if auditing.drawn(link, Hash(task.offer_digest), hash_of(Digest(task.root or "")), rate):
        _order(session, task, rate, DRAWN if rate == plan.audit else certain, now)


def may_be_a_lie(job: Job) -> bool:
    """Whether what diverges in the job is audited: where answers are scored, a single score says nothing."""
    spec = jobs.spec(job)
    return spec.audited and not spec.verifier.scored


def suspect(session: Session, task: Task, now: float) -> None:
    """For the transaction that finds a divergence: paid and never merged, it would shelter who wants a job to pause."""
    _order(session, task, 1.0, SUSPECT, now)


def _order(session: Session, task: Task, rate: float, reason: str, now: float) -> None:
    session.add(
        Audit(
            task_id=task.id,
            job_id=task.job_id,
            round=task.round,
            state=AuditState.DUE,
            rate=rate,
            determinism_class=task.determinism_class or "",
            reason=reason,
            scored=jobs.spec_of(session, task).verifier.scored,
            runs=0,
            auditor="",
            created_at=now,
        )
    )
    session.flush()


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
        paid = _replicas(session, task, ReplicaState.DIVERGED if diverged else ReplicaState.PAYABLE)
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
            _order(session, other, 1.0, copies.ALIKE, now)
        ring(session, "aftermath", "plan", "aggregate", "settle")
    if task.state == TaskState.REVOKED and task.payload:
        forget.payload(context, Digest(task.payload))
    return None


def _right(session: Session, task: Task, audit: Audit, now: float) -> bool:
    return not scoring.convicts(session, audit, now) if audit.scored else audit.root == task.root


def _replicas(session: Session, task: Task, state: ReplicaState) -> list[Replica]:
    found = select(Replica).where(Replica.task_id == task.id, Replica.state == state)
    return list(session.scalars(found.order_by(Replica.worker)))


def _outvoted(session: Session, task: Task, audit: Audit) -> list[Replica]:
    """Rejected by a verdict for the auditor's answer; whose salt did not open its seal has committed to no such one."""
    rejected = _replicas(session, task, ReplicaState.REJECTED)
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
    lost = money.revoke(session, task, wrong)
    accusations.bring(session, job, task, wrong, audit.root or "", now)
    right = _outvoted(session, task, audit)
    for replica in right:
        _vindicate(context, session, job, task, replica, now)
    confirmed = [replica.operator for replica in right if replica.root == audit.root]
    reputations.passed(session, confirmed, audit.determinism_class, now)
    for other in others:
        _order(session, other, 1.0, REOPENED, now)
    found = {"workers": [replica.worker for replica in wrong], "vindicated": [replica.worker for replica in right]}
    told = {"round": task.round, "runs": audit.runs, "used": task.used, "lost": lost}
    tell(session, job.id, "audit_failed", now, task=task.id, **told, **found)


def _vindicate(context: Context, session: Session, job: Job, task: Task, replica: Replica, now: float) -> None:
    """It was outvoted and right: the verdict is signed anew, and the price is its own as if it had won."""
    reason = "an audit found that it was right"
    verdicts.sign(
        context, session, task, replica, ReplicaState.PAYABLE, Outcome.ACCEPTED, replica.root, reason, heard=False
    )
    money.lock(session, [(job.id, replica.worker)])
    account = money.earn(session, task, replica, hash_of(Digest(replica.root or "")), now)
    account.voucher_signature = context.voucher(job, account)


def _consequences(context: Context, session: Session, job: Job, row: Round, task: Task, now: float) -> None:
    """An open round has the task done again; a merged one is taken back, left as it is, or left to the requester."""
    chosen = jobs.spec(job).on_failure
    if row.state == RoundState.OPEN:
        plan.reissue(context, session, job, task, now)
    elif task.used and chosen == "replay" and job.ended_at is None:
        job.rewind_to = row.number if job.rewind_to is None else min(job.rewind_to, row.number)
        latest = jobs.latest_round(session, job.id)
        for number in range(row.number + 1, latest.number + 1 if latest else 0):
            call_off(context, session, job.id, number)
    elif task.used and chosen == "pause" and job.state == JobState.RUNNING:
        move_now(session, job, JobState.PAUSED, reason=f"an audit found a wrong gradient in round {task.round}")
        tell(session, job.id, "paused", now, reason=job.reason)
