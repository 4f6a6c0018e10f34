"""Counts the answers to tasks whose right answer is known: planted, or audited by a draw."""

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, func, or_, select

from gradmarket.market.features.planted import compute_catch_rate, compute_false_alarm_rate
from gradmarket.market.messages import Outcome
from gradmarket.market.terms import AuditState, ReplicaState, TaskState
from gradmarket.market.views.trust_views import KnownAnswers, TrustView
from requester.feature import features_of
from requester.features.audits.audit_draws import DRAWN, UNPROVEN
from requester.features.audits.audit_tables import Audit
from requester.features.planted.planted_rows import PlantedAnswer
from requester.store import jobs
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader

OVER: Final = (TaskState.FINAL, TaskState.REVOKED)
JUDGED: Final = (int(Outcome.ACCEPTED), int(Outcome.REJECTED))

_DECIDED: Final = and_(Audit.state.in_((AuditState.PASSED, AuditState.FAILED)), Audit.scored.is_(False))
_PLANTED: Final = PlantedAnswer.root.is_not(None)
_DRAWN: Final = and_(_DECIDED, Audit.reason.in_((DRAWN, UNPROVEN)), PlantedAnswer.root.is_(None))
"""Other audits have a suspicion as their cause, and would overstate the wrong answers."""
_RIGHT: Final = case((_DECIDED, Audit.root), else_=PlantedAnswer.root)
_CLASS: Final = func.coalesce(PlantedAnswer.determinism_class, Audit.determinism_class)


def load_trust(reader: RowReader, job: Job) -> TrustView:
    planted, audited = _count_answers(reader, job, _PLANTED), _count_answers(reader, job, _DRAWN)
    over = reader.session.scalar(select(func.count()).where(Task.job_id == job.id, Task.state.in_(OVER))) or 0
    wrong, caught = planted.wrong + audited.wrong, planted.caught + audited.caught
    right, alarms = planted.answers + audited.answers - wrong, planted.false_alarms + audited.false_alarms
    alike = PlantedAnswer.determinism_class == Audit.determinism_class
    refuted = _join(select(func.count())).where(Task.job_id == job.id, _PLANTED, _DECIDED, alike)
    more: dict[str, Any] = {}
    for feature in features_of(reader):
        more |= feature.describe_trust(reader, job)
    return TrustView(
        tasks=over,
        share=(planted.tasks + audited.tasks) / over if over else None,
        planted=planted,
        audited=audited,
        catch_rate=compute_catch_rate(wrong, caught, jobs.load_spec(job).plan().audit),
        false_alarm_rate=compute_false_alarm_rate(right, alarms),
        auditor_errors=reader.session.scalar(refuted.where(PlantedAnswer.root != Audit.root)) or 0,
        **more,
    )


def _count_answers(reader: RowReader, job: Job, known: ColumnElement[bool]) -> KnownAnswers:
    """Counts the judged answers in the class of the known one. A right one that was outvoted is paid after an audit."""
    wrong, accepted = Replica.root != _RIGHT, Replica.root == Task.root
    alarm = and_(~wrong, ~accepted, Replica.state == ReplicaState.PAYABLE)
    counted = (func.sum(case((condition, 1), else_=0)) for condition in (wrong, and_(wrong, ~accepted), alarm))
    figures = _join(select(func.count(Task.id.distinct()), func.count(Replica.id), *counted))
    answers = figures.join(Replica, Replica.task_id == Task.id).where(
        Task.job_id == job.id,
        Task.state.in_(OVER),
        known,
        Task.determinism_class == _CLASS,
        Replica.determinism_class == _CLASS,
        Replica.root.is_not(None),
        or_(Replica.outcome.in_(JUDGED), Replica.state == ReplicaState.PAYABLE),
    )
    tasks, count, *sums = reader.session.execute(answers).one()
    of_wrong, caught, alarms = (int(value or 0) for value in sums)
    return KnownAnswers(tasks=tasks, answers=count, wrong=of_wrong, caught=caught, false_alarms=alarms)


def _join(query: Any) -> Any:
    joined = query.select_from(Task).outerjoin(Audit, Audit.task_id == Task.id)
    return joined.outerjoin(PlantedAnswer, PlantedAnswer.task_id == Task.id)
