"""The determinism classes that auditors ask for, and those that a job may settle on. The rule is class_checks."""

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Any, Final

from sqlalchemy import BindParameter, Select, bindparam, exists, func, select, update
from sqlalchemy.orm import aliased

from gradmarket.market.features.audits import class_checks
from gradmarket.market.rules import classes
from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.terms import REPRODUCIBLE, AuditState, TaskState
from requester.features.audits.audit_kind import audit_kinds_of
from requester.features.audits.audit_tables import Audit, AuditedClass
from requester.store import jobs, workers
from requester.store.among import NOW, is_in_bound_list
from requester.store.review import ClassLimits
from requester.store.tables import Job, Replica, Task, Worker
from requester.store.work import RowReader, Work
from requester.store.workers import HAS_ROOM_OR_PLACE, PRESENT, asked_of


def record_asking_auditor(work: Work, determinism_class: str, now: float) -> None:
    """Records that an auditor that announces the class asks for work; writes at most once in RECORDED_EVERY_S."""
    for name in classes.list_checked_classes(determinism_class):
        row = work.get(AuditedClass, name)
        if row is None:
            work.add(AuditedClass(determinism_class=name, asked_at=now))
        elif now - row.asked_at > class_checks.RECORDED_EVERY_S:
            row.asked_at = now


def _select_of_job(job: Job, names: Iterable[str]) -> frozenset[str]:
    """Returns those of the classes that answers of the job may be of."""
    reproducible = jobs.load_spec(job).reproducible
    return frozenset(name for name in names if (name == REPRODUCIBLE) == reproducible)


def renew_classes(work: Work, now: float) -> None:
    """Gives the auditors that were there when the service stopped GRACE_S from `now`, its start, to come back.

    By its rows, the service last ran when a worker was heard of or a job was made. Auditors that had been gone by then
    get no grace.
    """
    signs = (select(func.max(Worker.seen_at)), select(func.max(Job.created_at)))
    stopped = max(work.session.scalar(sign) or 0.0 for sign in signs)
    there = list(work.session.scalars(_THERE, {"now": stopped}))
    renewed = now - class_checks.UNHEARD_S + class_checks.GRACE_S
    late = update(AuditedClass).where(AuditedClass.determinism_class.in_(there), AuditedClass.asked_at < renewed)
    work.session.execute(late.values(asked_at=renewed))


def select_classes_there(now: float | BindParameter[float]) -> Select[tuple[str]]:
    """Selects the classes in which an auditor asked for work within UNHEARD_S, or has an audit in hand."""
    lately = select(AuditedClass.determinism_class).where(AuditedClass.asked_at >= now - class_checks.UNHEARD_S)
    at_work = select(Audit.determinism_class).where(Audit.state == AuditState.DUE, Audit.claimed_until >= now)
    return select(lately.union(at_work).subquery().c.determinism_class)


_THERE: Final = select_classes_there(NOW)


def list_servable_classes(reader: RowReader, job: Job, now: float) -> frozenset[str] | None:
    """Returns the classes whose answers an auditor of the job can check; None where any class may answer.

    Any class may answer where no bits are compared with an auditor's; where separate operators vote, until an audit
    lapsed; and where audits settle tasks before acceptance, once none of these classes has a worker (limit_classes).
    """
    spec = jobs.load_spec(job)
    if not spec.audited or spec.verifier.scored:
        return None
    if spec.unaudited_plan is not None:
        if describe_lack(reader, job, now):
            return frozenset()
        there = _select_of_job(job, reader.session.scalars(_THERE, {"now": now}))
        return there - _load_unable_classes(reader, job, now)
    lapsed = {"job": job.id, "state": AuditState.LAPSED}
    if spec.plan().first_wave > 1 and not reader.session.scalar(_HAS_AUDIT_IN, lapsed):
        return None
    return list_heard_classes(reader, job, now)


def limit_classes(reader: RowReader, job: Job, now: float, asking: Sequence[Worker]) -> ClassLimits:
    """Returns which classes the job may settle on: those that an auditor can check, where the others must not decide.

    Where a plain vote decides, those with an auditor are left out instead: of them only workers without room are there.
    It may decide, where audits settle tasks before acceptance, while no worker of the servable classes can be drawn,
    and once a task has waited for one and none of them answered meanwhile; in a job that settled on a class without
    auditor at once.
    """
    spec, servable = jobs.load_spec(job), list_servable_classes(reader, job, now)
    audited = ClassLimits(spec.plan(), servable)
    if spec.unaudited_plan is None or servable is None:
        return audited
    if any(workers.get_class(worker, job) in servable for worker in asking):
        return audited
    if servable and has_drawable_worker(reader, job, now, servable):
        return audited
    if job.determinism_class is None or job.determinism_class in servable:
        since = now - compute_wait_for_audited(reader, job, servable)
        waited = reader.session.scalar(_WAITING, {"job": job.id, "since": since})
        if not waited or (servable and has_answered_since(reader, job, servable, since)):
            return audited
    return ClassLimits(spec.unaudited_plan, None, servable)


def list_preferred_classes(reader: RowReader, job: Job, now: float) -> frozenset[str] | None:
    """Returns the classes whose answers an auditor can compare with its own; None where no answers are compared."""
    spec = jobs.load_spec(job)
    return list_heard_classes(reader, job, now) if spec.audited and not spec.verifier.scored else None


def list_mixable_classes(reader: RowReader, job: Job, now: float) -> Mixable | None:
    """Returns the pairs of classes with an auditor, each on its own tasks, in jobs whose audits settle tasks first."""
    if jobs.load_spec(job).unaudited_plan is None:
        return None
    return frozenset(combinations(sorted(list_servable_classes(reader, job, now) or ()), 2))


def find_last_sign(reader: RowReader, now: float) -> float:
    """Returns when the service last heard from any client: while it was away, no auditor could ask.

    Stages of other processes run meanwhile, and must not take silence for absence.
    """
    return min(now, max(sign or 0.0 for sign in reader.session.execute(_SIGNS).one()))


_SIGNS: Final = select(
    select(func.max(Worker.seen_at)).scalar_subquery(),
    select(func.max(AuditedClass.asked_at)).scalar_subquery(),
    select(func.max(Job.created_at)).scalar_subquery(),
)


def describe_lack(reader: RowReader, job: Job, now: float) -> str:
    """Returns why no audit of the job can be run just now, whichever auditors ask; empty where one can."""
    return next(filter(None, (kind.describe_lack(reader, job, now) for kind in audit_kinds_of(reader))), "")


def _load_unable_classes(reader: RowReader, job: Job, now: float) -> frozenset[str]:
    return frozenset(reader.session.scalars(_UNABLE_OF_JOB, {"job": job.id, "now": now}))


def select_unable_classes(job: Any, now: float | BindParameter[float]) -> Select[Any]:
    """Selects the classes whose auditors took an audit of the job, left it unanswered, and answered none since.

    `job` is a job's id or a column that holds it.
    """
    answered = aliased(Audit)
    since = exists().where(
        answered.job_id == _UNABLE.job_id,
        answered.determinism_class == _UNABLE.determinism_class,
        answered.state.in_([AuditState.PASSED, AuditState.FAILED]),
        answered.ended_at > _UNABLE.ended_at,
    )
    return select(_UNABLE.determinism_class).where(
        _UNABLE.job_id == job,
        _UNABLE.state == AuditState.LAPSED,
        _UNABLE.claims >= class_checks.ATTEMPTS,
        _UNABLE.ended_at > now - class_checks.UNABLE_S,
        ~since,
    )


_UNABLE: Final = aliased(Audit)
_UNABLE_OF_JOB: Final = select_unable_classes(bindparam("job"), NOW)


def compute_wait_for_audited(reader: RowReader, job: Job, servable: frozenset[str]) -> float:
    """Returns the seconds that a task waits for a worker of the servable classes before a plain vote decides."""
    passed = servable and reader.session.scalar(_HAS_AUDIT_IN, {"job": job.id, "state": AuditState.PASSED})
    return class_checks.UNHEARD_S if passed else class_checks.UNAUDITED_S


_HAS_AUDIT_IN: Final = select(exists().where(Audit.job_id == bindparam("job"), Audit.state == bindparam("state")))


def has_answered_since(reader: RowReader, job: Job, servable: frozenset[str], since: float) -> bool:
    """Returns whether a worker of these classes committed to an answer of the job after `since`."""
    return reader.session.scalar(_ANSWERED, {"job": job.id, "classes": servable, "since": since}) is not None


_ANSWERED: Final = (
    select(Replica.id)
    .join(Worker, Worker.address == Replica.worker)
    .where(
        Worker.seen_at > bindparam("since"),
        Replica.job_id == bindparam("job"),
        Replica.committed_at > bindparam("since"),
        is_in_bound_list(Replica.determinism_class, "classes"),
    )
    .limit(1)
)
"""The worker was seen when it committed: so its index keeps the older replicas of a long job out."""


def needs_no_auditor(reader: RowReader, job: Job, now: float) -> bool:
    """Returns whether the job settled on a class without auditor, in which a plain vote decides."""
    spec = jobs.load_spec(job)
    there = None if spec.unaudited_plan is None else list_servable_classes(reader, job, now)
    return there is not None and job.determinism_class is not None and job.determinism_class not in there


def is_lately_unable(reader: RowReader, job: Job, now: float) -> bool:
    """Returns whether auditors of the job's class, which answered one of its audits, now leave them unanswered."""
    name = job.determinism_class
    ended = Audit.state.in_([AuditState.PASSED, AuditState.FAILED])
    answered = exists().where(Audit.job_id == job.id, Audit.determinism_class == name, ended)
    return name in _load_unable_classes(reader, job, now) and bool(reader.session.scalar(select(answered)))


def list_heard_classes(reader: RowReader, job: Job, now: float) -> frozenset[str]:
    """Returns the classes that auditors asked for since the job was made, or shortly before, and were able to check."""
    if describe_lack(reader, job, now):
        return frozenset()
    since = job.created_at - class_checks.UNHEARD_S
    known = _select_of_job(job, reader.session.scalars(_HEARD, {"since": since}))
    return known - _load_unable_classes(reader, job, now)


_HEARD: Final = select(AuditedClass.determinism_class).where(AuditedClass.asked_at >= bindparam("since"))


_WAITING: Final = select(
    exists().where(Task.job_id == bindparam("job"), Task.state == TaskState.OPEN, Task.created_at <= bindparam("since"))
)


def has_drawable_worker(reader: RowReader, job: Job, now: float, classes: Collection[str]) -> bool:
    """Returns whether a worker of these classes has room or holds a place of the job, known or not."""
    return reader.session.execute(_DRAWABLE, asked_of(job, now, classes)).first() is not None


_DRAWABLE: Final = PRESENT.where(HAS_ROOM_OR_PLACE).limit(1)
