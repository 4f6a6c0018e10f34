"""Queries about trusted runs: which an auditor of another class must compute too, and which may be compared."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, ForeignKey, Index, and_, exists, or_, select, text, tuple_, update
from sqlalchemy.orm import Mapped, aliased, mapped_column

from gradmarket.market.rules.verifiers.tolerance import Classes
from gradmarket.market.terms import CalibrationState, Digest, RoundState, TaskState
from requester.features.audits.audit_tables import Audit
from requester.features.tolerance.calibrations import Calibration
from requester.store.tables import Base, Job, Round, Task, Worker
from requester.store.work import RowReader, Work
from requester.store.workers import LIVE_S

_SKETCHED = text("sketch IS NOT NULL")


class TrustedRun(Base):
    """A trusted answer to an audited task in one class: the audit's own, or one computed for calibration."""

    __tablename__ = "trusted_runs"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    determinism_class: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    family: Mapped[str]
    """The job's family: calibrations."""
    root: Mapped[Digest | None]
    """The payload root that was found last."""
    sketch: Mapped[bytes | None]
    """float32[tensors, 64] in the layout's order, little-endian; None while it runs, and once no run can follow."""
    runs: Mapped[int] = mapped_column(default=0)
    auditor: Mapped[str]
    claimed_until: Mapped[float | None]
    seconds: Mapped[float | None]
    """Duration of the auditor's step."""
    created_at: Mapped[float]
    ended_at: Mapped[float | None]

    __table_args__ = (
        Index("trusted_runs_alike", "family"),
        Index("trusted_runs_of_job", "job_id", "round"),
        Index("trusted_runs_sketched", "created_at", postgresql_where=_SKETCHED, sqlite_where=_SKETCHED),
    )


def of_audit(work: Work, audit: Audit, family: str, now: float) -> None:
    """Adds the run of an audit that passed: its answer is the accepted one."""
    work.add(
        TrustedRun(
            task_id=audit.task_id,
            determinism_class=audit.determinism_class,
            job_id=audit.job_id,
            round=audit.round,
            family=family,
            root=audit.root,
            sketch=audit.sketch,
            runs=audit.runs,
            auditor=audit.auditor,
            seconds=audit.seconds,
            created_at=now,
            ended_at=now,
        )
    )


def find_wanted_run(reader: RowReader, determinism_class: str, now: float) -> TrustedRun | None:
    """Returns a run of another class whose task is useful in this one too and that nobody computes in it now, or None.

    The newest is chosen, since its parameters are kept the longest.
    """
    own = aliased(TrustedRun)
    taken = exists().where(
        own.task_id == TrustedRun.task_id,
        own.determinism_class == determinism_class,
        or_(own.ended_at.is_not(None), own.claimed_until >= now),
    )
    sketched = select(TrustedRun).join(Job, Job.id == TrustedRun.job_id).where(TrustedRun.sketch.is_not(None))
    others = sketched.where(TrustedRun.determinism_class != determinism_class, ~taken)
    # something can be learnt about this class: a refused pair is not measured any more, and a calibrated pair
    # further while the job goes on and workers of the class are present for it
    pairs: dict[str, list[tuple[str, str]]] = {CalibrationState.REFUSED: [], CalibrationState.CALIBRATED: []}
    ours = or_(Calibration.one == determinism_class, Calibration.other == determinism_class)
    for row in reader.session.scalars(select(Calibration).where(ours, Calibration.state.in_(pairs))):
        pairs[row.state].append((row.family, row.other if row.one == determinism_class else row.one))
    theirs = tuple_(TrustedRun.family, TrustedRun.determinism_class)
    workers = exists().where(Worker.determinism_class == determinism_class, Worker.seen_at > now - LIVE_S)
    goes_on = and_(Job.ended_at.is_(None), workers)
    refused, calibrated = pairs[CalibrationState.REFUSED], pairs[CalibrationState.CALIBRATED]
    useful = others.where(theirs.not_in(refused), or_(theirs.not_in(calibrated), goes_on))
    return reader.session.scalars(
        useful.order_by(TrustedRun.created_at.desc(), TrustedRun.task_id).limit(1)
    ).one_or_none()


def find_current_run(reader: RowReader, task_id: str, determinism_class: str) -> TrustedRun | None:
    """Returns the run with its newest state, or None; the caller has locked its task."""
    own = (TrustedRun.task_id == task_id, TrustedRun.determinism_class == determinism_class)
    query = select(TrustedRun).where(*own).execution_options(populate_existing=True)
    return reader.session.scalars(query).one_or_none()


def list_comparable_runs(reader: RowReader, run: TrustedRun) -> Sequence[TrustedRun]:
    """Returns the same task's runs in other classes that it may be compared with."""
    others = (TrustedRun.task_id == run.task_id, TrustedRun.determinism_class != run.determinism_class)
    query = select(TrustedRun).where(*others, TrustedRun.sketch.is_not(None))
    return reader.session.scalars(query.order_by(TrustedRun.determinism_class)).all()


def drop_sketches(work: Work, job_id: str, *rounds: ColumnElement[bool]) -> None:
    """Drops these rounds' sketches: the parameters are gone, so nobody can compute their tasks in another class."""
    gone = (TrustedRun.job_id == job_id, TrustedRun.sketch.is_not(None), *rounds)
    work.session.execute(update(TrustedRun).where(*gone).values(sketch=None))


def list_compared_tasks(reader: RowReader, family: str, classes: Classes, most: int) -> Sequence[tuple[str, str, str]]:
    """Returns the newest tasks computed in both classes, each with the root found in the first and in the second.

    Only tasks that no further attempt can be paid for (market.rules.lifecycle).
    """
    first, second = aliased(TrustedRun), aliased(TrustedRun)
    both = select(first.task_id, first.root, second.root).join(second, second.task_id == first.task_id)
    of_pair = both.where(
        first.family == family,
        first.determinism_class == classes[0],
        second.determinism_class == classes[1],
        first.ended_at.is_not(None),
        second.ended_at.is_not(None),
    )
    # no task of its round will be done again
    closed = exists().where(
        Round.job_id == Task.job_id, Round.number == Task.merge_round, Round.state == RoundState.CLOSED
    )
    ahead = or_(Job.rewind_to.is_(None), Task.merge_round < Job.rewind_to)
    final = or_(Job.ended_at.is_not(None), and_(Task.state == TaskState.FINAL, closed, ahead))
    newest = of_pair.join(Task, Task.id == first.task_id).join(Job, Job.id == Task.job_id).where(final)
    newest = newest.order_by(first.created_at.desc(), first.task_id).limit(most)
    return [(task, one or "", other or "") for task, one, other in reader.session.execute(newest)]
