"""Queries about scores and the trusted runs among them. The rule is market.features.loss_change."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import JSON, ColumnElement, ForeignKey, Index, and_, bindparam, exists, func, select
from sqlalchemy.orm import Mapped, aliased, mapped_column

from gradmarket.market.features.loss_change import (
    CLEARS,
    CONVICTS,
    WINDOW,
    Admission,
    Change,
    honest_share,
    is_waiting_pay_due,
)
from gradmarket.market.rules.lifecycle import IN_FLIGHT, PAID
from gradmarket.market.terms import AuditState, ReplicaState, TaskState
from requester.features.audits.audit_draws import SUSPECT
from requester.features.audits.audit_tables import Audit
from requester.store import earned_rows
from requester.store.earned_rows import WAITING, lock_accounts
from requester.store.tables import Account, Base, Earned, Job, Replica, Task
from requester.store.work import RowReader, Work


class Score(Base):
    """An audit's measurements of an accepted gradient and of the auditor's own: see market.features.loss_change."""

    __tablename__ = "scores"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    operator: Mapped[str]
    own: Mapped[float]
    others: Mapped[list[Any]] = mapped_column(JSON)
    trusted_own: Mapped[float]
    trusted_others: Mapped[list[Any]] = mapped_column(JSON)
    number: Mapped[int | None]
    """Position in the order in which the job's scores were judged, from 0; None until then, as the fields below."""
    honest: Mapped[float | None]
    """At least this share of honest gradients passes, by the trusted runs until then; None where they are too few."""
    total: Mapped[float | None]
    """Sum of the operator's weights in its present test, including this one."""
    newcomers: Mapped[list[Any] | None] = mapped_column(JSON)
    """The Admission of uncleared operators after this score; None before it is judged, and as if none was before."""

    __table_args__ = (
        Index("scores_of_job", "job_id", "number"),
        Index("scores_of_operator", "job_id", "operator", "number"),
    )


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


def load_admission(reader: RowReader, job_id: str) -> Admission:
    """Returns whether the job admits operators that no whole test has cleared."""
    newest = select(Score.newcomers).where(Score.job_id == job_id, Score.number.is_not(None))
    state = reader.session.scalar(newest.order_by(Score.number.desc()).limit(1))
    return Admission(*state) if state else Admission()


def list_newest_scores(reader: RowReader, job_id: str) -> list[Score]:
    """Returns the last WINDOW judged scores of the job: their trusted runs count."""
    theirs = select(Score).where(Score.job_id == job_id, Score.number.is_not(None))
    return list(reader.session.scalars(theirs.order_by(Score.number.desc()).limit(WINDOW)))


def decide_waiting_pay(reader: RowReader, job: Job, operator: str) -> bool | None:
    """Returns whether the operator's waiting pay is promised, or dropped; None while nothing decides.

    At the job's end it is promised unless all of its scores together, by the honest share known then, speak against it.
    """
    if is_operator_cleared(reader, job.id, operator):
        return True
    own = (Score.job_id == job.id, Score.operator == operator, Score.number.is_not(None))
    mine = reader.session.scalars(select(Score).where(*own).order_by(Score.number)).all()
    if any((row.total or 0.0) >= CONVICTS for row in mine):
        return False
    if job.ended_at is None:
        return None
    audited = (Audit.job_id == job.id, Audit.state.in_((AuditState.DUE, AuditState.ANSWERED)), Audit.reason != SUSPECT)
    theirs = exists().where(*audited, Replica.task_id == Audit.task_id, Replica.operator == operator)
    if reader.session.scalar(select(theirs)):
        return None
    runs = list_newest_scores(reader, job.id)
    honest = honest_share(sum(build_trusted_change(run).passes for run in runs), len(runs))
    return is_waiting_pay_due([build_accepted_change(row).passes for row in mine], honest)


def split_diverged(reader: RowReader, job: Job) -> tuple[set[str], set[str]]:
    """Returns the replicas with waiting pay that diverged where another operator's answer to the same task did not.

    First those where that answer is known to be honest: its operator is cleared or, once its own pay is decided at the
    job's end, its score passes. Then those where its pay still waits. A free stranger's answer speaks against nobody.
    """
    cleared = list_cleared_operators(reader, job.id)
    alone, doubted = set[str](), set[str]()
    for replica, other, waits, score in reader.session.execute(_DIVERGED, {"job": job.id}):
        if waits:
            doubted.add(replica)
        elif other in cleared or (score is not None and build_accepted_change(score).passes):
            alone.add(replica)
    return alone, doubted - alone


_OTHER, _ITS, _OTHERS, _OTHER_S_PAY = aliased(Replica), aliased(Task), aliased(Task), aliased(Earned)
_DIVERGED: Final = (
    select(Replica.id, _OTHER.operator, _OTHER_S_PAY.waits, Score)
    .join(Earned, Earned.replica_id == Replica.id)
    .join(_ITS, _ITS.id == Replica.task_id)
    .join(
        _OTHERS,
        and_(_OTHERS.job_id == _ITS.job_id, _OTHERS.round == _ITS.round, _OTHERS.index == _ITS.index),
    )
    .join(_OTHER, _OTHER.task_id == _OTHERS.id)
    .join(_OTHER_S_PAY, _OTHER_S_PAY.replica_id == _OTHER.id)
    .outerjoin(Score, Score.task_id == _OTHERS.id)
    .where(Replica.job_id == bindparam("job"), Replica.state == ReplicaState.DIVERGED, *earned_rows.WAITING)
    .where(_OTHERS.state.in_((TaskState.ACCEPTED, TaskState.FINAL)), _OTHER.state == ReplicaState.PAYABLE)
    .where(_OTHER.operator != Replica.operator, _OTHER_S_PAY.revoked.is_(False))
)


def list_cleared_operators(reader: RowReader, job_id: str) -> frozenset[str]:
    """Returns the operators that a whole test has found honest in this job."""
    cleared = select(Score.operator).where(Score.job_id == job_id, Score.total <= CLEARS)
    return frozenset(reader.session.scalars(cleared.distinct()))


def list_promising_operators(reader: RowReader, job_id: str) -> frozenset[str]:
    """Returns the operators whose newest sum of scores in this job speaks for honesty rather than noise."""
    newest = select(func.max(Score.number)).where(Score.job_id == job_id).group_by(Score.operator)
    theirs = select(Score.operator).where(Score.job_id == job_id, Score.number.in_(newest), Score.total < 0.0)
    return frozenset(reader.session.scalars(theirs))


def count_uncleared_answers(reader: RowReader, job_id: str, number: int, cleared: Collection[str]) -> int:
    """Returns how many places of the round's tasks other operators hold or were paid for."""
    theirs = select(func.count()).select_from(Replica).join(Task, Task.id == Replica.task_id)
    held = theirs.where(Replica.state.in_((*IN_FLIGHT, *PAID)), Replica.operator.not_in(cleared))
    return reader.session.scalar(held.where(Task.job_id == job_id, Task.round == number)) or 0


def is_operator_cleared(reader: RowReader, job_id: str, operator: str) -> bool:
    """Returns whether a whole test has found the operator honest in this job."""
    own = (Score.job_id == job_id, Score.operator == operator, Score.total <= CLEARS)
    return bool(reader.session.scalar(select(exists().where(*own))))


def end_waiting(work: Work, job_id: str, condition: ColumnElement[bool], paid: bool) -> list[Account]:
    """Promises or drops the waiting pay of some replicas of a job; returns the accounts that change.

    `condition` is one on the replicas.
    """
    theirs = (Earned.job_id == job_id, *WAITING, condition)
    waiting = work.session.scalars(select(Earned).join(Replica, Replica.id == Earned.replica_id).where(*theirs)).all()
    accounts = lock_accounts(work, [(job_id, row.worker) for row in waiting])
    for row in waiting:
        account = accounts[job_id, row.worker]
        account.waiting -= row.units
        account.earned -= 0 if paid else row.units
        row.waits, row.revoked = not paid, not paid
    work.flush()
    return list(accounts.values())


def list_waiting_operators(reader: RowReader, job_id: str) -> set[str]:
    """Returns the operators whose pay waits in the job."""
    theirs = select(Replica.operator).join(Earned, Earned.replica_id == Replica.id)
    return set(reader.session.scalars(theirs.where(Earned.job_id == job_id, *WAITING).distinct()))
