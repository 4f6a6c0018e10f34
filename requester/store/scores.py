"""Queries about scores: an operator's newest in a job, and what the job's trusted runs say. The rule is loss_change."""

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from gradmarket.market.rules.loss_change_test import CLEARS, WINDOW, Change
from gradmarket.requester.store.tables import Replica, Score, Task


def accepted(row: Score) -> Change:
    """What the accepted gradient changed."""
    return Change(row.own, tuple(row.others))


def trusted(row: Score) -> Change:
    """What the auditor's own gradient of the same task changed."""
    return Change(row.trusted_own, tuple(row.trusted_others))


def judged(session: Session, job_id: str) -> int:
    """How many scores of the job were judged."""
    counted = select(func.count()).where(Score.job_id == job_id, Score.number.is_not(None))
    return session.scalar(counted) or 0


def latest(session: Session, job_id: str, operator: str, worker: str) -> Score | None:
    """The operator's newest that was judged; where it has none, the worker's under whom it worked for until then."""
    judged = select(Score).where(Score.job_id == job_id, Score.number.is_not(None)).order_by(Score.number.desc())
    by_worker = judged.join(Task, Task.id == Score.task_id).join(Replica, Replica.id == Task.uploader)
    for theirs in (judged.where(Score.operator == operator), by_worker.where(Replica.worker == worker)):
        if found := session.scalars(theirs.limit(1)).one_or_none():
            return found
    return None


def newest(session: Session, job_id: str) -> list[Score]:
    """The last that were judged: their trusted runs count."""
    theirs = select(Score).where(Score.job_id == job_id, Score.number.is_not(None))
    return list(session.scalars(theirs.order_by(Score.number.desc()).limit(WINDOW)))


def cleared(session: Session, job_id: str, operator: str) -> bool:
    """Whether a whole test has found the operator honest in this job."""
    own = (Score.job_id == job_id, Score.operator == operator, Score.total <= CLEARS)
    return bool(session.scalar(select(exists().where(*own))))
