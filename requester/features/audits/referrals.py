"""Has an audit settle tasks that ballots leave open, before anything is accepted: answers with its root are paid.

The rules are market.features.proven.seat_rules and, for the auditor's runs, audits.auditing.judge_referral.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gradmarket.market.rules import assignment
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.terms import AuditState, Digest, ReplicaState, TaskState
from requester.context import Context
from requester.features import reputation as reputations
from requester.features.audits import audit_rows
from requester.features.audits.audit_draws import reopen_audit
from requester.features.audits.audit_tables import Audit
from requester.moves import ending, judging
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.tables import Replica
from requester.store.work import Work, record_event
from requester.store.workers import build_party

REASON: Final = "an audit found another root than it did"


def settle_referral(context: Context, work: Work, hand: TaskInHand, audit: Audit, now: float) -> None:
    """Accepts the answers that have the auditor's root; without any, its own result may be the gradient.

    Its result is the gradient if an audit of its class has found an answer of the job right before: a machine that
    agrees with nobody is not fit to audit. A wrong answer is unpaid, and its worker rests. Two equal ones bar their
    operators, and a lone one costs its operator's standing. A right answer is evidence once its payload has come. The
    caller has locked the audits, the job and the task.
    """
    task, revealed = hand.task, hand.in_state(ReplicaState.REVEALED)
    right = [replica for replica in revealed if replica.root == audit.root]
    wrong = [replica for replica in revealed if replica.root != audit.root]
    convicted = list_convicted({replica.id: replica.root or "" for replica in wrong})
    guilty, alone = _list_keys(wrong, convicted), _list_keys(wrong, {row.id for row in wrong} - convicted)
    others = audit_rows.lock_spared_tasks(work, sorted(guilty))  # before accounts and records are locked
    ending.rest_workers(work, wrong, now)
    work.set_state_now(audit, AuditState.PASSED if right else AuditState.FAILED, ended_at=now)
    reputations.record_lone_error(work, alone, audit.determinism_class, now)
    reputations.record_failed_audit(work, guilty, audit.determinism_class, now)
    for other in others:
        reopen_audit(work, other, now)
    parties = {"right": [row.worker for row in right], "wrong": [row.worker for row in wrong]}
    barred = [row.worker for row in wrong if row.id in convicted]
    record_event(work, task.job_id, "referral_settled", now, task=task.id, round=task.round, barred=barred, **parties)
    if right:
        judging.accept_answer(context, work, hand, right, wrong, REASON, now)
    elif jobs.is_task_wanted(work, hand.job, task) and audit_rows.has_agreed(work, hand.job, audit.determinism_class):
        # The auditors of its class are asked for the payload: there is time for two of them to compute it. Where none
        # brings it, the attempt fails and nobody learns the root.
        root = Digest(audit.root or "")
        due = now + 2 * task.offer.lease_seconds + task.offer.upload_seconds
        work.move(task, TaskState.UPLOADING, uploader=None, root=root, due_at=due, due_most=due)
    else:
        judging.fail_task(context, work, hand, "an audit found none of its answers", now)


def lapse_referral(context: Context, work: Work, hand: TaskInHand, audit: Audit, now: float) -> None:
    """Fails an attempt that no auditor of its class audits; nobody is blamed, and the task is done again."""
    work.set_state_now(audit, AuditState.LAPSED, ended_at=now)
    details = {"task": hand.task.id, "round": hand.task.round, "determinism_class": audit.determinism_class}
    record_event(work, hand.task.job_id, "audit_lapsed", now, **details)
    by_panel = jobs.load_spec(hand.job).panel is not None
    judging.fail_task(context, work, hand, audit_rows.describe_lapse(audit, by_panel), now)


def _list_keys(replicas: Sequence[Replica], among: set[str]) -> set[str]:
    return assignment.list_answerable_keys(build_party(row) for row in replicas if row.id in among)


def record_settled_answers(work: Work, hands: Iterable[TaskInHand], now: float) -> None:
    """Records the evidence of answers that an audit had found right before their payload came."""
    passed: set[tuple[str, reputations.Passed]] = set()
    for hand in hands:
        audit = work.get(Audit, hand.task.id) if hand.task.plan.referred else None
        if audit is not None and audit.state == AuditState.PASSED:
            cost = reputations.compute_cost(hand.job, hand.task.offer.price)
            paid = hand.in_state(*PAID)
            passed |= {(hand.task.id, (row.operator, audit.determinism_class, cost)) for row in paid}
    reputations.record_passed_audits(work, [one for _task, one in passed], now)


def list_convicted(wrong: Mapping[str, str]) -> set[str]:
    """Returns which of these unpaid wrong answers, with their roots, convict: those whose root another one shares."""
    counts = Counter(wrong.values())
    return {replica for replica, root in wrong.items() if counts[root] > 1}
