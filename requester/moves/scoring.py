"""Audits by scores, where no second machine gives the same answer: one score never fails an audit by itself.

All scores of an operator in the job together can convict it, as market.rules.loss_change_test says.
"""

from dataclasses import dataclass

from gradmarket.market.errors import Refused
from gradmarket.market.rules import loss_change_test, secrets
from gradmarket.market.rules.loss_change_test import (
    ChangeVerdict,
    add_score,
    compute_score_weight,
    decide_change_verdict,
    honest_share,
)
from gradmarket.market.terms import Digest, Hash
from gradmarket.market.wire.audits import ScoreRequest
from requester.store import jobs, scores
from requester.store.event_log import record_event
from requester.store.tables import Audit, Job, Replica, Score, Task
from requester.store.work import RowReader, Work


@dataclass(frozen=True, slots=True)
class ScoringTask:
    """A payload to be scored on its task's rows and on other rows, which `seed` draws."""

    payload: Digest
    seed: Hash


def build_scoring_task(reader: RowReader, task: Task) -> ScoringTask:
    spec = jobs.load_spec(reader.get_one(Job, task.job_id))
    link = secrets.of_task(task.secret, spec.replication.max_replicas)[-1]
    return ScoringTask(Digest(task.payload or ""), loss_change_test.compute_rows_seed(link, task.offer_digest))


def store_score(work: Work, task: Task, audit: Audit, said: ScoreRequest | None) -> None:
    """Stores the auditor's score. Raises Refused if it is missing, or was not asked for."""
    if audit.scored != (said is not None):
        raise Refused("a score is wanted with the root" if audit.scored else "no score was asked for")
    if said is None:
        return
    work.add(
        Score(
            task_id=audit.task_id,
            job_id=audit.job_id,
            operator=load_accepted_replica(work, task).operator,
            own=said.accepted.own,
            others=list(said.accepted.others),
            trusted_own=said.trusted.own,
            trusted_others=list(said.trusted.others),
        )
    )
    work.flush()


def judge_score(work: Work, audit: Audit, now: float) -> bool:
    """Adds the score to its operator's sum; returns whether that convicts it. One call at a time in a job."""
    row = work.get_one(Score, audit.task_id)
    worker = load_accepted_replica(work, work.get_one(Task, row.task_id)).worker
    before = scores.find_latest_score(work, row.job_id, row.operator, worker)
    row.number = scores.count_judged_scores(work, row.job_id)
    work.flush()
    runs = scores.list_newest_scores(work, row.job_id)
    row.honest = honest_share(sum(scores.build_trusted_change(run).passes for run in runs), len(runs))
    change = scores.build_accepted_change(row)
    row.total = add_score(before.total or 0.0 if before else 0.0, compute_score_weight(change.passes, row.honest))
    work.flush()
    conclusion = decide_change_verdict(row.total)
    if conclusion != ChangeVerdict.OPEN:
        details = {"task": row.task_id, "operator": row.operator, "total": row.total, "honest": row.honest}
        record_event(work, row.job_id, f"scores_{conclusion}", now, **details)
    return conclusion == ChangeVerdict.CONVICTED


def compute_scored_audit_rate(reader: RowReader, task: Task, drawn: float) -> float:
    """Returns the probability that a task is audited: 1 until a whole test has cleared its operator in the job."""
    return (
        drawn if scores.is_operator_cleared(reader, task.job_id, load_accepted_replica(reader, task).operator) else 1.0
    )


def load_accepted_replica(reader: RowReader, task: Task) -> Replica:
    """Returns the replica whose answer was accepted."""
    return reader.get_one(Replica, task.uploader or "")
