"""Judges the answers of auditors: a task passes its audit, or is revoked.

If an audit revokes a diverged task, the job that it had paused goes on by itself.

A revoked gradient is not merged; if it was merged already, the merge is taken back (rollback). The workers that
were paid for it keep what a voucher promised, but lose their reputation and get no further work. Workers that were
rejected with the right answer are paid.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import func, select, update

from gradmarket.market.features.audits import class_checks
from gradmarket.market.messages import Outcome
from gradmarket.market.rules import assignment, overlap
from gradmarket.market.rules.lifecycle import DIVERGED
from gradmarket.market.rules.verifiers import tolerance
from gradmarket.market.terms import AUDIT_UNDER_WAY, AuditState, Digest, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire.poll import hash_of
from requester.context import Context
from requester.feature import features_of
from requester.features import reputation as reputations
from requester.features.audits import audit_draws, audit_rows, copies, referrals
from requester.features.audits.audit_draws import create_audit, reopen_audit
from requester.features.audits.audit_kind import audit_kinds_of
from requester.features.audits.audit_tables import Audit
from requester.features.audits.audit_views import load_audit_sketch
from requester.moves import blob_cleanup, resume, task_attempts, verdicts
from requester.moves.ending import cancel_open_tasks
from requester.store import ballots, earned_rows, in_hand, jobs, tasks
from requester.store.in_hand import TaskInHand
from requester.store.locks import lock_row
from requester.store.tables import Earned, Job, Replica, Round, Task
from requester.store.work import RowReader, Work, record_event
from requester.store.workers import build_party

TOPIC = "audit"
FOUND_RIGHT: Final = "an audit found that it was right"


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return [*audit_rows.list_answered_audits(reader), *audit_rows.list_lapsed_audits(reader, now)]


def run(context: Context, task_id: str) -> float | None:
    """Judges one answer, or ends an audit that nobody can run. Waits while the task's round is being merged.

    Only one audit is judged at a time: a failed audit changes rows of other jobs, so that two could deadlock.
    """
    now = context.clock()
    with context.begin() as work:
        work.one_at_a_time(TOPIC)
        its_job = work.get_one(Task, task_id).job_id
        job, task = lock_row(work, Job, its_job), lock_row(work, Task, task_id)
        audit, row = work.get_one(Audit, task_id), work.get(Round, (job.id, task.merge_round))
        lapsed = audit.state == AuditState.DUE and task_id in audit_rows.list_lapsed_audits(work, now)
        if audit.state != AuditState.ANSWERED and not lapsed:
            return None
        if row is not None and row.state == RoundState.MERGING and job.ended_at is None:
            return context.settings.sweep_s
        hand = in_hand.of_task(work, task, job)
        if task.state == TaskState.REFERRED:
            settle = referrals.lapse_referral if lapsed else referrals.settle_referral
            settle(context, work, hand, audit, now)
        elif audit.scored and audit.reason in (audit_draws.SUSPECT, audit_draws.REFUTED) and not lapsed:
            # Others do the task where the auditor's own answer did not diverge; else the job stays paused. Nobody is
            # blamed, since nobody's bits are compared.
            refuted = audit.reason == audit_draws.REFUTED
            work.set_state_now(audit, AuditState.FAILED if refuted else AuditState.PASSED, ended_at=now)
            if refuted and hand.task.state == TaskState.DIVERGED:
                resume.repeat_by_others(context, work, hand, now)
                _resume_after_lie(context, work, hand.job)
        elif lapsed:
            _lapse_audit(context, work, hand, audit, row, now)
        else:
            _judge_accepted(context, work, hand, audit, row, now)
        let_go = _tell_others(context, work, job, task, audit, now)
        work.notify("rollback", "plan", "aggregate", "settle")
    if task.state == TaskState.REVOKED and task.payload:
        blob_cleanup.drop_payload_if_unneeded(context, task.payload)
    if let_go:
        blob_cleanup.drop_unneeded(context, its_job)
    return None


def _tell_others(context: Context, work: Work, job: Job, task: Task, audit: Audit, now: float) -> bool:
    """Passes the end of the audit on to features; returns whether blobs were released."""
    for feature in features_of(work) if audit.state not in AUDIT_UNDER_WAY else ():
        feature.audit_ended(work, task, now)
    for kind in audit_kinds_of(work):
        kind.settle_waiting_pay(work, job, context.voucher, now)
    return True in [kind.release_blobs(work, task, audit, now) for kind in audit_kinds_of(work)]


def _judge_accepted(
    context: Context, work: Work, hand: TaskInHand, audit: Audit, row: Round | None, now: float
) -> None:
    task, job, diverged = hand.task, hand.job, hand.task.state == TaskState.DIVERGED
    paid = hand.in_state(ReplicaState.DIVERGED if diverged else ReplicaState.PAYABLE)
    found = (kind.is_answer_right(work, audit, now) for kind in audit_kinds_of(work))
    if next((right for right in found if right is not None), audit.root == task.root):
        work.set_state_now(audit, AuditState.PASSED, ended_at=now)
        # a score that does not convict, or two windows of a task, add nothing to a record and prove no class
        if not audit.scored and audit.window is None:
            _record_confirmed(work, job, task, audit, paid, now)
            own, name = audit.determinism_class == job.determinism_class, job.determinism_class
            parties = audit_rows.list_confirmed_parties(work, audit) if own and job.proven_class != name else ()
            if class_checks.is_class_proven(parties):
                job.proven_class = audit.determinism_class
                operators = sorted({party.operator for party in parties})
                proof = {"determinism_class": job.proven_class, "operators": operators}
                record_event(work, job.id, "class_proven", now, **proof)
        record_event(work, job.id, "audit_passed", now, task=task.id, round=task.round, runs=audit.runs)
        if not diverged:
            for kind in audit_kinds_of(work):
                kind.record_pass(work, job, audit, now)
    else:
        # one near the auditor's sketch was right, unless its root is the task's: then a wrong answer was near it
        near = _list_near(work, task, audit, paid)
        wrong = [replica for replica in paid if replica.root == task.root or replica.id not in near]
        _fail_audit(context, work, hand, audit, wrong, now)
        _apply_consequences(context, work, hand, row, now)
        copies.record_copied_answer(work, task, [replica.worker for replica in wrong], now)
        if diverged:
            _resume_after_lie(context, work, job)
    for other in copies.lock_equal_unaudited_tasks(work, task):
        create_audit(work, other, 1.0, copies.ALIKE, now)


def _list_near(reader: RowReader, task: Task, audit: Audit, replicas: Collection[Replica]) -> set[str]:
    """Returns the replicas whose sketches are within the thresholds of the audit's; none where roots were compared."""
    if task.allowed is None or not replicas:
        return set()
    sketches, own = ballots.sketches_of(reader, task), load_audit_sketch(reader, task, audit)
    if own is None:
        return set()
    trusted, allowed = tolerance.SketchBallot(audit.determinism_class, own), tolerance.parse_thresholds(task.allowed)
    theirs = {
        row.id: tolerance.SketchBallot(row.determinism_class, sketches[row.id])
        for row in replicas
        if row.id in sketches
    }
    return {id_ for id_, ballot in theirs.items() if tolerance.is_ballot_near(ballot, trusted, allowed)}


def _record_confirmed(work: Work, job: Job, task: Task, audit: Audit, replicas: Sequence[Replica], now: float) -> None:
    cost = reputations.compute_cost(job, task.offer.price)
    operators_ = {replica.operator for replica in replicas if replica.root == audit.root}
    reputations.record_passed_audits(work, [(one, audit.determinism_class, cost) for one in operators_], now)


def _fail_audit(context: Context, work: Work, hand: TaskInHand, audit: Audit, wrong: list[Replica], now: float) -> None:
    """Revokes the task, resets the records of those that answer for `wrong`, and pays replicas that were right."""
    task, job = hand.task, hand.job
    work.set_state_now(audit, AuditState.FAILED, ended_at=now)
    reason = "the scores of its operator convict it" if audit.scored else "an audit found another gradient"
    work.move(task, TaskState.REVOKED, reason=reason)
    keys = sorted(assignment.list_answerable_keys(map(build_party, wrong)))
    others = audit_rows.lock_spared_tasks(work, keys, job)  # tasks are locked before accounts and records
    reputations.record_failed_audit(work, keys, audit.determinism_class, now)
    lost = revoke_earnings(work, task, wrong)
    for kind in audit_kinds_of(work):
        kind.accuse_workers(work, job, task, audit, wrong, now)
    # those whose salt did not open their seal did not commit to that answer, and stay rejected
    outvoted = list(filter(verdicts.is_outvoted, hand.replicas))
    near = _list_near(work, task, audit, outvoted)
    right = [replica for replica in outvoted if replica.root == audit.root or replica.id in near]
    for replica in right:
        verdicts.sign_verdict(
            context, work, task, replica, ReplicaState.PAYABLE, Outcome.ACCEPTED, replica.root, FOUND_RIGHT, heard=False
        )
        (account,) = earned_rows.lock_accounts(work, [(job.id, replica.worker)]).values()
        earned_rows.record_earning(work, account, task, replica, hash_of(Digest(replica.root or "")), now)
        account.voucher_signature = context.voucher(job, account)
    _record_confirmed(work, job, task, audit, right, now)
    for other in others:
        reopen_audit(work, other, now)
    parties = {"workers": [replica.worker for replica in wrong], "vindicated": [replica.worker for replica in right]}
    details = {"round": task.round, "runs": audit.runs, "used": task.used, "lost": str(lost * int(job.unit))}
    record_event(work, job.id, "audit_failed", now, task=task.id, **details, **parties)


def _lapse_audit(context: Context, work: Work, hand: TaskInHand, audit: Audit, row: Round | None, now: float) -> None:
    """Ends an audit that no auditor can run: the task is done again, and nobody is blamed or unpaid.

    Where answers are scored the task stands: one score proves nothing.
    """
    task, job, diverged = hand.task, hand.job, hand.task.state == TaskState.DIVERGED
    work.set_state_now(audit, AuditState.LAPSED, ended_at=now)
    if audit.scored:
        return
    work.move(task, TaskState.REVOKED, reason=audit_rows.describe_lapse(audit, jobs.load_spec(job).panel is not None))
    details = {"task": task.id, "round": task.round, "determinism_class": audit.determinism_class}
    record_event(work, job.id, "audit_lapsed", now, **details)
    _apply_consequences(context, work, hand, row, now)
    if diverged:
        _resume_after_lie(context, work, job)


def _apply_consequences(context: Context, work: Work, hand: TaskInHand, row: Round | None, now: float) -> None:
    """Reissues the task if its round is open; for a merged round follows `on_failure`: replay, pause or nothing.

    `row`: the round that merges the task, where it has opened.
    """
    task, job = hand.task, hand.job
    chosen = jobs.load_spec(job).on_failure
    if row is None or row.state == RoundState.OPEN:
        task_attempts.reissue_task(context, work, hand, now)
    elif task.used and chosen == "replay" and job.ended_at is None:
        job.rewind_to = row.number if job.rewind_to is None else min(job.rewind_to, row.number)
        latest = jobs.latest_round(work, job.id)
        first_harmed = overlap.last_unharmed(row.number, jobs.load_spec(job).overlap) + 1
        for number in range(first_harmed, latest.number + 1 if latest else 0):
            cancel_open_tasks(context, work, job.id, number)
    elif task.used and chosen == "pause" and job.state == JobState.RUNNING:
        work.set_state_now(job, JobState.PAUSED, reason=f"an audit found a wrong gradient in round {row.number}")
        record_event(work, job.id, "paused", now, reason=job.reason)


def revoke_earnings(work: Work, task: Task, replicas: Sequence[Replica]) -> int:
    """Revokes these replicas' unbatched earnings of the task; returns the units that their vouchers promise for it."""
    of_replicas = Earned.replica_id.in_([replica.id for replica in replicas])
    # waiting pay is dropped with the rest of its operator's
    theirs = (Earned.task_id == task.id, of_replicas, Earned.waits.is_(False))
    unsettled = update(Earned).where(*theirs, Earned.batch_id.is_(None)).values(revoked=True)
    work.session.execute(unsettled.execution_options(synchronize_session=False))
    total: Any = work.session.scalar(select(func.coalesce(func.sum(Earned.units), 0)).where(*theirs))
    return int(total)


def _resume_after_lie(context: Context, work: Work, job: Job) -> None:
    """Resumes the job after a review revoked a diverged task, unless something else pauses it."""
    paused_by_it = job.state == JobState.PAUSED and job.reason.startswith(DIVERGED)
    if paused_by_it and not tasks.list_diverged_tasks(work, job.id):
        work.set_state_now(job, JobState.RUNNING, reason="")
        resume.record_resumption(work, job, context.clock())
