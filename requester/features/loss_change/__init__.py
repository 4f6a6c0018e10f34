"""Audits by scores, for jobs whose answers no second machine repeats: one score never fails an audit by itself.

All scores of an operator in the job together can convict it, by the rule of market.features.loss_change.
"""

from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import ColumnElement, and_

from gradmarket.market.errors import Refused
from gradmarket.market.features import loss_change
from gradmarket.market.features.loss_change import (
    add_score,
    compute_score_weight,
    decide_change_verdict,
    honest_share,
)
from gradmarket.market.rules import secrets
from gradmarket.market.terms import ChangeVerdict, Digest, ReplicaState
from gradmarket.market.views.trust_views import ChangeView, ScoreView
from gradmarket.market.wire.audit_messages import AuditAnswer, ScoreTask
from requester.context import Context
from requester.features.audits import audit_draws
from requester.features.audits.audit_kind import AuditingFeature, AuditKind
from requester.features.audits.audit_tables import Audit
from requester.features.loss_change import scores
from requester.features.loss_change.scores import Score, end_waiting, list_waiting_operators
from requester.notifier import worker_topic
from requester.store import jobs
from requester.store.in_hand import TaskInHand
from requester.store.review import Clearance
from requester.store.tables import Account, Job, Replica, Task
from requester.store.work import RowReader, Work, record_event

UNCLEARED: Final = "no whole test has found its operator honest in this job yet"


class ScoredAudits(AuditKind):
    """Audits whose auditor scores the accepted payload, in jobs with the verifier `loss_change`."""

    def choose_rate(self, reader: RowReader, hand: TaskInHand, drawn: float) -> tuple[float, str] | None:
        """Makes the audit certain until a whole test has cleared the operator in the job."""
        if not jobs.load_spec(hand.job).verifier.scored:
            return None
        operator = load_accepted_replica(reader, hand.task).operator
        return drawn if scores.is_operator_cleared(reader, hand.job.id, operator) else 1.0, UNCLEARED

    def describe_claim(self, context: Context, work: Work, task: Task, audit: Audit) -> Mapping[str, object]:
        """Gives the payload to score on its task's rows, and the seed that draws other rows."""
        if not audit.scored:
            return {}
        spec = jobs.load_spec(work.get_one(Job, task.job_id))
        link = secrets.of_task(task.secret, spec.replication.max_replicas)[-1]
        seed = loss_change.compute_rows_seed(link, task.offer_digest)
        return {"score": ScoreTask(payload=Digest(task.payload or ""), seed=seed)}

    def store_answer(self, work: Work, task: Task, audit: Audit, answer: AuditAnswer) -> None:
        """Stores the score; of an answer that diverged only whether the auditor's own did not, which is no score."""
        if audit.scored and audit.reason == audit_draws.SUSPECT:
            audit.reason = audit_draws.REFUTED if answer.score and answer.score.usable else audit.reason
        else:
            score = answer.score
            if audit.scored != (score is not None):
                raise Refused("send a score with the root" if audit.scored else "this audit takes no score")
            if score is None:
                return
            work.add(
                Score(
                    task_id=audit.task_id,
                    job_id=audit.job_id,
                    operator=load_accepted_replica(work, work.get_one(Task, audit.task_id)).operator,
                    own=score.accepted.own,
                    others=list(score.accepted.others),
                    trusted_own=score.trusted.own,
                    trusted_others=list(score.trusted.others),
                )
            )
            work.flush()

    def is_answer_right(self, work: Work, audit: Audit, now: float) -> bool | None:
        return not judge_score(work, audit, now) if audit.scored else None

    def must_pay_wait(self, reader: RowReader, job: Job, replica: Replica) -> bool:
        """It waits until a whole test has cleared the operator in the job."""
        return jobs.load_spec(job).verifier.scored and not scores.is_operator_cleared(reader, job.id, replica.operator)

    def settle_waiting_pay(self, work: Work, job: Job, sign: Callable[[Job, Account], bytes], now: float) -> None:
        """Pays operators that a whole test has cleared, and drops the waiting pay of the convicted.

        Once the job has ended, the rest is decided as soon as no audit of their answers is under way. An answer that
        diverged has no score: scores.split_diverged decides where its pay is dropped, and where it waits for another's.
        """
        if not jobs.load_spec(job).verifier.scored:
            return

        def end(operator: str, condition: ColumnElement[bool], paid: bool) -> None:
            changed = end_waiting(work, job.id, and_(Replica.operator == operator, condition), paid)
            for account in changed:
                if account.promised:
                    account.voucher_signature = sign(job, account)
                work.notify(worker_topic(account.worker))
            if changed:
                kind, workers = "pay_released" if paid else "pay_dropped", [one.worker for one in changed]
                record_event(work, job.id, kind, now, operator=operator, workers=workers)

        operators = sorted(list_waiting_operators(work, job.id))
        paid = {operator: scores.decide_waiting_pay(work, job, operator) for operator in operators}
        decided = {operator: pay for operator, pay in paid.items() if pay is not None}
        for operator, pay in decided.items():
            end(operator, Replica.state != ReplicaState.DIVERGED, pay)
        alone, doubted = scores.split_diverged(work, job)
        for operator in operators if alone else ():
            end(operator, Replica.id.in_(alone), paid=False)
        for operator, pay in decided.items():
            end(operator, Replica.id.not_in(doubted if pay else ()), pay)

    def find_clearance(self, reader: RowReader, job: Job) -> Clearance | None:
        """Returns the operators that a whole test has cleared; the rule is market.features.loss_change."""
        if not jobs.load_spec(job).verifier.scored:
            return None
        cleared, row = scores.list_cleared_operators(reader, job.id), jobs.latest_round(reader, job.id)

        def count_trials(known: int) -> int:
            if row and not scores.load_admission(reader, job.id).admits(row.number):
                sizes = jobs.load_spec(job).sizes
                most = loss_change.count_places_meanwhile(sizes.before(row.number), sizes.of(row.number))
            else:
                most = loss_change.count_uncleared_places(jobs.count_places(reader, job), known)
            return most - (scores.count_uncleared_answers(reader, job.id, row.number, cleared) if row else 0)

        return Clearance(cleared, count_trials, scores.list_promising_operators(reader, job.id))


def judge_score(work: Work, audit: Audit, now: float) -> bool:
    """Adds the score to its operator's sum; returns whether that convicts it. One call at a time in a job."""
    row = work.get_one(Score, audit.task_id)
    worker = load_accepted_replica(work, work.get_one(Task, row.task_id)).worker
    before = scores.find_latest_score(work, row.job_id, row.operator, worker)
    cleared, admission = (
        scores.is_operator_cleared(work, row.job_id, row.operator),
        scores.load_admission(work, row.job_id),
    )
    row.number = scores.count_judged_scores(work, row.job_id)
    work.flush()
    runs = scores.list_newest_scores(work, row.job_id)
    row.honest = honest_share(sum(scores.build_trusted_change(run).passes for run in runs), len(runs))
    change = scores.build_accepted_change(row)
    weight = compute_score_weight(change.passes, row.honest)
    row.total = add_score(before.total or 0.0 if before else 0.0, weight)
    newest = jobs.latest_round(work, row.job_id)
    number = newest.number if newest else 0
    tasks = jobs.load_spec(work.get_one(Job, row.job_id)).sizes.of(number)
    after = admission if cleared else admission.add(weight, number, tasks)
    row.newcomers = [after.total, after.closings, after.until]
    work.flush()
    if after.closings > admission.closings:
        record_event(work, row.job_id, "newcomers_closed", now, until=after.until, closings=after.closings)
    conclusion = decide_change_verdict(row.total)
    if conclusion != ChangeVerdict.OPEN:
        details = {"task": row.task_id, "operator": row.operator, "total": row.total, "honest": row.honest}
        record_event(work, row.job_id, f"scores_{conclusion}", now, **details)
    return conclusion == ChangeVerdict.CONVICTED


def load_accepted_replica(reader: RowReader, task: Task) -> Replica:
    """Returns the replica whose answer was accepted."""
    return reader.get_one(Replica, task.uploader or "")


class LossChangeFeature(AuditingFeature):
    name = "loss_change"
    needs = ("audits",)
    audit_kind = ScoredAudits()

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        score = reader.get(Score, row.task_id) if row.scored else None
        return {"score": None if score is None else build_score_view(score)}


def build_score_view(row: Score) -> ScoreView:
    total = row.total or 0.0
    return ScoreView(
        number=row.number or 0,
        operator=row.operator,
        accepted=_build_change_view(scores.build_accepted_change(row)),
        trusted=_build_change_view(scores.build_trusted_change(row)),
        honest=row.honest,
        total=total,
        convicts=loss_change.CONVICTS,
        verdict=loss_change.decide_change_verdict(total),
    )


def _build_change_view(change: loss_change.Change) -> ChangeView:
    return ChangeView(own=change.own, others=list(change.others), score=change.score, passes=change.passes)
