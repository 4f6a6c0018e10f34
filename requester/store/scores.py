"""Queries about scores and the trusted runs among them. The rule is market.rules.loss_change_test."""

from collections.abc import Collection

from sqlalchemy import exists, func, select

from gradmarket.market.rules.lifecycle import IN_FLIGHT, PAID
from gradmarket.market.rules.loss_change_test import CLEARS, WINDOW, Change
from requester.store.tables import Replica, Score, Task
from requester.store.work import RowReader


def build_accepted_change(row: Score) -> Change:
    """Returns by how much the accepted gradient lowered the losses."""
    return Change(row.own, tuple(row.others))


def build_trusted_change(row: Score) -> Change:
    """Returns by how much the auditor's own gradient of the same task lowered the losses."""
    return Change(row.trusted_own, tuple(row.trusted_others))


def count_judged_scores(reader: RowReader, job_id: str) -> int:
    """Counts the job's judged scores."""
    counted = select(func.count()).where(Score.job_id == job_id, Score.number.is_not(None))
    return reader.session.scalar(counted) or 0


def find_latest_score(reader: RowReader, job_id: str, operator: str, worker: str) -> Score | None:
    """Returns the operator's newest judged score; if there is none, the worker's, under whichever operator it had."""
    judged = select(Score).where(Score.job_id == job_id, Score.number.is_not(None)).order_by(Score.number.desc())
    by_worker = judged.join(Task, Task.id == Score.task_id).join(Replica, Replica.id == Task.uploader)
    for theirs in (judged.where(Score.operator == operator), by_worker.where(Replica.worker == worker)):
        if score := reader.session.scalars(theirs.limit(1)).one_or_none():
            return score
    return None


def list_newest_scores(reader: RowReader, job_id: str) -> list[Score]:
    """Returns the last WINDOW judged scores of the job: their trusted runs count."""
    theirs = select(Score).where(Score.job_id == job_id, Score.number.is_not(None))
    return list(reader.session.scalars(theirs.order_by(Score.number.desc()).limit(WINDOW)))


def list_cleared_operators(reader: RowReader, job_id: str) -> frozenset[str]:
    """Returns the operators that a whole test has found honest in this job."""
    cleared = select(Score.operator).where(Score.job_id == job_id, Score.total <= CLEARS)
    return frozenset(reader.session.scalars(cleared.distinct()))


def count_uncleared_answers(reader: RowReader, job_id: str, number: int, cleared: Collection[str]) -> int:
    """Returns how many places of the round's tasks other operators hold or were paid for."""
    theirs = select(func.count()).select_from(Replica).join(Task, Task.id == Replica.task_id)
    held = theirs.where(Replica.state.in_((*IN_FLIGHT, *PAID)), Replica.operator.not_in(cleared))
    return reader.session.scalar(held.where(Task.job_id == job_id, Task.round == number)) or 0


def is_operator_cleared(reader: RowReader, job_id: str, operator: str) -> bool:
    """Whether a whole test has found the operator honest in this job."""
    own = (Score.job_id == job_id, Score.operator == operator, Score.total <= CLEARS)
    return bool(reader.session.scalar(select(exists().where(*own))))
