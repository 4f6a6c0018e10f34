"""Queries about audits: which of them wait, and from which round on an open audit may take something back."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import aliased

from gradmarket.market.features.audits import auditing, class_checks
from gradmarket.market.features.audits.auditing import Turn
from gradmarket.market.messages import Outcome
from gradmarket.market.rules import classes
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.lifecycle import AUDIT_OPEN
from gradmarket.market.terms import REPRODUCIBLE, AuditState, ReplicaState, TaskState
from requester.features.audits import audited_classes
from requester.features.audits.audit_kind import audit_kinds_of
from requester.features.audits.audit_tables import Audit, AuditedClass
from requester.store import jobs
from requester.store.among import NOW, is_in_bound_list
from requester.store.locks import held_tasks
from requester.store.review import REFERRED
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work
from requester.store.workers import build_party


def find_earliest_audited_round(reader: RowReader, job_id: str) -> int | None:
    """Returns the first round with an audit that is not over, or None."""
    return reader.session.scalar(_EARLIEST, {"job": job_id})


_EARLIEST: Final = select(func.min(Audit.round)).where(Audit.job_id == bindparam("job"), Audit.state.in_(AUDIT_OPEN))


def sum_awardable_units(reader: RowReader, job_id: str) -> int:
    """Returns the units that the job's open audits can award at most: the prices of outvoted answers to their tasks."""
    rejected = (Replica.state == ReplicaState.REJECTED, Replica.outcome == int(Outcome.REJECTED))
    judged = select(Task).join(Audit, Audit.task_id == Task.id).join(Replica, Replica.task_id == Task.id)
    theirs = judged.where(Audit.job_id == job_id, Audit.state.in_(AUDIT_OPEN), *rejected)
    return sum(task.offer.price for task in reader.session.scalars(theirs.where(Replica.verdict_root != Replica.root)))


def describe_waiting_audits(reader: RowReader, job_id: str, now: float, referred_s: float | None = None) -> str:
    """Describes what due audits wait for, without their number, which would reveal which tasks were drawn.

    `referred_s`: of those alone that settle what is accepted, and are due for longer than these seconds.
    """
    any_cpu = Audit.determinism_class == REPRODUCIBLE
    able = case((Audit.scored, "any class"), (any_cpu, "any x86 processor"), else_="class " + Audit.determinism_class)
    auditor = "an auditor of " + able + " (gradmarket auditor run)"
    awaited = [(condition, words) for words, condition in _list_awaited(reader, now)]
    for_what = case(*awaited, else_=auditor) if awaited else auditor
    due = select(for_what).where(Audit.job_id == job_id, Audit.state == AuditState.DUE)
    if referred_s is not None:
        due = due.where(Audit.reason == REFERRED, Audit.created_at < now - referred_s)
    waiting = sorted(reader.session.scalars(due.distinct()))
    what = "accepted tasks" if referred_s is None else "answers"
    return f"{what} wait for {', or '.join(waiting)}" if waiting else ""


def has_audit_for(reader: RowReader, job_id: str, number: int, reason: str) -> bool:
    """Returns whether a task of the round has, or had, an audit for this reason."""
    theirs = (Audit.job_id == job_id, Audit.round == number, Audit.reason == reason)
    return bool(reader.session.scalar(select(exists().where(*theirs))))


def under_way(reader: RowReader, tasks: Sequence[str]) -> bool:
    """Returns whether an audit of any of these tasks is not over."""
    return bool(reader.session.scalar(select(exists().where(Audit.task_id.in_(tasks), Audit.state.in_(AUDIT_OPEN)))))


def compute_longest_wait(reader: RowReader, job: Job, since: int, now: float) -> float:
    """Returns the longest wait for an audit, in seconds: of those due in the job's class, and of its newest rounds.

    The newest rounds begin with round `since`. Another job's audits that wait for something besides an auditor are left
    out, since they show nothing of auditors.
    """
    mine = Audit.job_id == job.id
    could = or_(mine, and_(true(), *(~condition for _, condition in _list_awaited(reader, now))))
    of_class = (Audit.determinism_class == job.determinism_class, Audit.scored.is_(False))
    due = select(now - func.min(Audit.created_at)).where(Audit.state == AuditState.DUE, could, *of_class)
    over = select(func.max(Audit.ended_at - Audit.created_at)).where(mine, Audit.round >= since, *of_class)
    waits = (reader.session.scalar(each) or 0.0 for each in (due, over))  # each by an index of its own
    return max(0.0, *waits)


def list_answered_audits(reader: RowReader) -> Sequence[str]:
    """Returns the ids of at most 256 tasks whose auditor has answered, the oldest audits first."""
    return reader.session.scalars(_ALL_ANSWERED).all()


_ALL_ANSWERED: Final = (
    select(Audit.task_id).where(Audit.state == AuditState.ANSWERED).order_by(Audit.created_at).limit(256)
)


def list_lapsed_audits(reader: RowReader, now: float) -> Sequence[str]:
    """Returns the ids of at most 256 tasks whose audits wait in vain.

    An audit waits in vain where no auditor of its class asked for work, or each that took it left it unanswered. Once
    one lapsed, further ones of its class in the job lapse at once. An audit that settles a task before it is accepted
    does not wait for an auditor that is gone, since nobody is paid before. Nor does a score once the job has ended and
    no auditor asks for work at all, since it keeps pay waiting. Time in which the service itself was away does not
    count.
    """
    if not reader.session.scalar(_ANY_DUE):
        return []
    heard_until = audited_classes.find_last_sign(reader, now)
    gone = and_(
        exists().where(Task.id == Audit.task_id, Task.state == TaskState.REFERRED),
        Audit.created_at < heard_until - class_checks.UNHEARD_S,
        Audit.determinism_class.not_in(audited_classes.select_classes_there(heard_until)),
    )
    since = Job.created_at - class_checks.UNHEARD_S
    heard = exists().where(AuditedClass.determinism_class == Audit.determinism_class, AuditedClass.asked_at >= since)
    other = aliased(Audit)
    alike = exists().where(
        other.job_id == Audit.job_id,
        other.determinism_class == Audit.determinism_class,
        other.state == AuditState.LAPSED,
    )
    waited = or_(Audit.created_at < heard_until - class_checks.UNHEARD_S, alike)
    unable = and_(
        _is_free(heard_until),
        or_(
            Audit.claims >= class_checks.ATTEMPTS,
            Audit.determinism_class.in_(audited_classes.select_unable_classes(Audit.job_id, now)),
        ),
    )
    left = and_(
        Job.ended_at < heard_until - class_checks.UNHEARD_S,
        ~audited_classes.select_classes_there(heard_until).exists(),
    )
    due = select(Audit.task_id).join(Job, Job.id == Audit.job_id).where(Audit.state == AuditState.DUE)
    unheard = or_(and_(Audit.scored.is_(False), or_(and_(waited, ~heard), gone)), and_(Audit.scored, left))
    tasks = due.where(or_(unheard, unable))
    return reader.session.scalars(tasks.order_by(Audit.created_at).limit(256)).all()


def describe_lapse(audit: Audit, by_panel: bool) -> str:
    if by_panel:
        return "no panel of auditors of separate operators decided about it"
    if audit.claims >= class_checks.ATTEMPTS:
        return f"{audit.claims} runs of auditors of its class {audit.determinism_class} gave no answer"
    return f"no auditor of its class {audit.determinism_class} came to check it"


_ANY_DUE: Final = select(exists().where(Audit.state == AuditState.DUE))


NO_AGREEMENT: Final = (
    "the auditor of class {} found none of the {} answers of {} workers: its machine or theirs err; compare them by "
    "`gradmarket worker check`, and run an auditor elsewhere (gradmarket auditor run; here: serve --auditor none)"
)


def describe_disagreement(reader: RowReader, job: Job) -> str:
    """Returns a text where audits refused answers of several separate workers before they were accepted, and found
    no answer of the job right."""
    if (row := reader.session.execute(_REFUSED, {"job": job.id}).one_or_none()) is None:
        return ""
    passed = exists().where(Audit.job_id == job.id, Audit.state == AuditState.PASSED)
    determinism_class, answers, parties = row
    if reader.session.scalar(select(passed)) or parties < class_checks.OPERATORS:
        return ""
    return NO_AGREEMENT.format(determinism_class, answers, parties)


_REFUSED: Final = (
    select(Audit.determinism_class, func.count(), func.count(Replica.operator.distinct()))
    .join(Task, Task.id == Audit.task_id)
    .join(Replica, Replica.task_id == Task.id)
    .where(
        Audit.job_id == bindparam("job"),
        Audit.state == AuditState.FAILED,
        or_(Task.state == TaskState.FAILED, Task.uploader.is_(None)),
        Replica.root.is_not(None),
    )
    .group_by(Audit.determinism_class)
    .order_by(func.count().desc())
    .limit(1)
)


def list_confirmed_parties(reader: RowReader, audit: Audit) -> Sequence[Party]:
    """Returns the parties that uploaded payloads whose root an audit in this one's job and class confirmed."""
    passed = (Audit.job_id == audit.job_id, Audit.state == AuditState.PASSED)
    uploaded = select(Replica).join(Task, Task.uploader == Replica.id).join(Audit, Audit.task_id == Task.id)
    theirs = uploaded.where(*passed, Audit.determinism_class == audit.determinism_class)
    return [build_party(replica) for replica in reader.session.scalars(theirs.order_by(Replica.id))]


def next_due(work: Work, determinism_class: str, now: float, rivals: Sequence[Turn] = ()) -> Audit | None:
    """Returns a due audit that nobody runs and this class may run: the oldest of the job whose turn it is.

    Returns None where it is the turn of one of the `rivals`, jobs whose audits are not given here. Skips rows that are
    locked, audits that wait for something, and those that ATTEMPTS auditors left unanswered (market.rules.classes). The
    turns are market.features.audits.auditing.order_turns.
    """
    ready = [~condition for _, condition in _list_awaited(work, now)]
    able = or_(Audit.determinism_class.in_(classes.list_checked_classes(determinism_class)), Audit.scored)
    due = (Audit.state == AuditState.DUE, able, _is_free(now), Audit.claims < class_checks.ATTEMPTS, *ready)
    of_jobs = select(Audit.job_id, Job.token, func.min(Audit.created_at)).join(Job, Job.id == Audit.job_id)
    waiting = [Turn(*row) for row in work.session.execute(of_jobs.where(*due).group_by(Audit.job_id, Job.token))]
    for job in order_jobs(work, [*waiting, *rivals], now):
        if any(rival.job == job for rival in rivals):
            return None
        first = select(Audit).where(Audit.job_id == job, *due).order_by(Audit.created_at, Audit.task_id).limit(1)
        audit = work.session.scalars(first.with_for_update(skip_locked=True)).one_or_none()
        if audit is not None:
            return audit
    return None


def order_jobs(reader: RowReader, waiting: Sequence[Turn], now: float) -> list[str]:
    """Returns the jobs in the order of their turns."""
    served = reader.session.execute(_SERVED, {"since": now - TURNS_S}) if len(waiting) > 1 else ()
    return auditing.order_turns(waiting, [Turn(name, requester, at or 0.0) for name, requester, at in served])


def has_agreed(reader: RowReader, job: Job, determinism_class: str) -> bool:
    """Returns whether an audit of the job in this class found an answer right."""
    return bool(reader.session.scalar(_HAS_AGREED, {"job": job.id, "class": determinism_class}))


_HAS_AGREED: Final = select(
    exists().where(
        Audit.job_id == bindparam("job"),
        Audit.determinism_class == bindparam("class"),
        Audit.state == AuditState.PASSED,
    )
)


def next_owed(work: Work, determinism_class: str, now: float) -> Audit | None:
    """Returns the oldest audit of the class whose payload an auditor must bring and none brings now.

    Skips rows that are locked.
    """
    asked = {"checked": classes.list_checked_classes(determinism_class), "now": now}
    return work.session.scalars(_OWED, asked).one_or_none()


TURNS_S: Final = 3600.0
"""Seconds for which a turn counts."""
_SERVED: Final = (
    select(Audit.job_id, Job.token, func.max(Audit.claimed_at))
    .join(Job, Job.id == Audit.job_id)
    .where(Audit.claimed_at > bindparam("since"))
    .group_by(Audit.job_id, Job.token)
)


def _is_free(now: float | BindParameter[float]) -> ColumnElement[bool]:
    return or_(Audit.claimed_until.is_(None), Audit.claimed_until < now)


_OWED: Final = (
    select(Audit)
    .join(Task, Task.id == Audit.task_id)
    .where(Task.state == TaskState.UPLOADING, Task.uploader.is_(None), Task.due_at > NOW, _is_free(NOW))
    .where(is_in_bound_list(Audit.determinism_class, "checked"))
    .order_by(Audit.created_at, Audit.task_id)
    .limit(1)
    .with_for_update(of=Audit, skip_locked=True)
)


def renew_claim(work: Work, task_id: str, auditor: str, now: float) -> None:
    """Keeps others from an audit that its auditor goes on computing, HELD_S at most from when it took it."""
    task = work.get(Task, task_id)
    mine = (Audit.task_id == task_id, Audit.state == AuditState.DUE, Audit.auditor == auditor)
    held = (Audit.claimed_until.is_not(None), Audit.claimed_at > now - class_checks.HELD_S)
    if task is not None:
        renewed = update(Audit).where(*mine, *held).values(claimed_until=now + task.offer.lease_seconds)
        work.session.execute(renewed.execution_options(synchronize_session=False))


def _list_awaited(reader: RowReader, now: float) -> list[tuple[str, ColumnElement[bool]]]:
    """Returns the reasons for which audits may wait, in words, each with its condition (audit_kind)."""
    return [item for kind in audit_kinds_of(reader) for item in kind.build_awaited(now).items()]


def release_claims(work: Work, auditor: str) -> None:
    """Releases the audits that this auditor, which is gone, had claimed."""
    mine = (Audit.state == AuditState.DUE, Audit.auditor == auditor)
    work.session.execute(update(Audit).where(*mine).values(claimed_until=None))


def lock_spared_tasks(work: Work, keys: Sequence[str], accepted_in: Job | None = None) -> Sequence[Task]:
    """Returns accepted tasks of these convicted wallets and operators, paid to them, that no audit repeats as a whole.

    `accepted_in`: the job that accepted the wrong answer, None for a split. Where it keeps more rounds open than it
    must, all of its own are among them, since a ring's other members may have lied there. Tasks of jobs without audits
    are left out, since nobody runs an auditor there. The rows are locked, with their jobs.
    """
    if not keys:
        return ()
    looked_at = accepted_in if accepted_in is not None and jobs.load_spec(accepted_in).looks_back else None
    mine = false() if looked_at is None else Task.job_id == looked_at.id
    their = or_(Replica.operator.in_(keys), Replica.worker.in_(keys))
    theirs = exists().where(Replica.task_id == Task.id, Replica.state == ReplicaState.PAYABLE, their)
    audited = exists().where(Audit.task_id == Task.id, Audit.window.is_(None))
    paid = (Task.state == TaskState.ACCEPTED, Task.payload.is_not(None))
    tasks = select(Task).where(*paid, or_(theirs, mine), ~audited)
    return held_tasks(work, tasks.where(Task.plan["audit"].as_float() > 0.0))


def lock_unaudited_tasks(work: Work, tasks: Sequence[str]) -> Sequence[Task]:
    """Returns the accepted ones of these tasks that nobody has audited yet; locks them, and their jobs."""
    audited = exists().where(Audit.task_id == Task.id)
    rows = select(Task).where(Task.id.in_(tasks), Task.state == TaskState.ACCEPTED, Task.payload.is_not(None))
    return held_tasks(work, rows.where(~audited)) if tasks else ()


def select_ended_audits(job_id: str) -> Select[Audit]:
    return select(Audit).where(Audit.job_id == job_id, Audit.state.in_((AuditState.PASSED, AuditState.FAILED)))


def list_revealed_roots(reader: RowReader, task_id: str) -> Sequence[str]:
    """Returns the roots that the task's replicas revealed and that are not judged yet."""
    revealed = (Replica.task_id == task_id, Replica.state == ReplicaState.REVEALED)
    return [root for root in reader.session.scalars(select(Replica.root).where(*revealed)) if root]
