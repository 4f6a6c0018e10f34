"""Seats of panels as rows: which auditors compute an audited task, and the answers that they sealed and opened."""

from collections.abc import Sequence
from functools import cache
from typing import Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    String,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Mapped, aliased, mapped_column

from gradmarket.market.features.auditors import BARRED, PanelMember
from gradmarket.market.features.audits import class_checks
from gradmarket.market.features.audits.auditing import Turn
from gradmarket.market.features.log import job_log
from gradmarket.market.rules import classes
from gradmarket.market.terms import AUDIT_UNDER_WAY, Address, AuditState, Digest, Hash, PanelSeatState, Role
from gradmarket.market.wire.log_proofs import LeafKind
from requester.feature import LogRecords
from requester.features.audits import audited_classes
from requester.features.audits.audit_tables import Audit
from requester.store import identities
from requester.store.among import NOW, is_in_bound_list
from requester.store.stored_times import bound_row_times
from requester.store.tables import ApiToken, Base, Job, Task
from requester.store.work import RowReader, Work

MOST: Final = 64
"""Most panels that one query returns: an auditor asks twice a second."""


class PanelSeat(Base):
    """`run`: the run of its audit, counted on where the audit is opened again. `operator`: the name of a token."""

    __tablename__ = "panel_seats"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    run: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    operator: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int]
    auditor: Mapped[str]
    state: Mapped[PanelSeatState]
    signer: Mapped[Address | None]
    sealed: Mapped[Hash | None]
    signature: Mapped[bytes | None]
    salt: Mapped[Hash | None]
    root: Mapped[Digest | None]
    seconds: Mapped[float | None]
    """Duration of the auditor's step."""
    claimed_at: Mapped[float | None]
    claimed_until: Mapped[float | None]
    """The time by which the auditor must seal its answer or, once all have, open it; None while it waits for the
    others. For a seat that was left, the time at which it ended.
    """

    __table_args__ = (
        Index("panel_seats_of_job", "job_id", "operator"),
        Index("panel_seats_claimed", "claimed_until"),
    )

    @property
    def member(self) -> PanelMember:
        asked = self.claimed_until is not None
        return PanelMember(self.operator, self.auditor, self.state, self.root, asked, self.number)


@cache
def is_panels() -> ColumnElement[bool]:
    """Condition on an audit: a panel decides it, and no auditor alone."""
    its_job = aliased(Job)
    return exists().where(its_job.id == Audit.job_id, its_job.spec["audit"]["auditors"]["count"].as_integer() > 0)


SEALS: Final = LogRecords(
    LeafKind.SEAL,
    PanelSeat.task_id + "/" + cast(PanelSeat.run, String) + "/" + PanelSeat.signer,
    (Task.offer_digest, PanelSeat.signer, PanelSeat.run, PanelSeat.sealed, PanelSeat.signature),
    lambda job: (
        *(Task.id == PanelSeat.task_id, PanelSeat.job_id == job, PanelSeat.sealed.is_not(None)),
        *(Audit.task_id == PanelSeat.task_id, Audit.state.not_in(AUDIT_UNDER_WAY)),
    ),
    job_log.encode_seal,
    (PanelSeat.task_id, PanelSeat.run, PanelSeat.number),
)
"""Of audits that are over: anybody may look leaves up, and the leaf of a task that is audited now would reveal that."""


def list_seats(reader: RowReader, task_id: str, run: int) -> list[PanelSeat]:
    seats = reader.session.scalars(_SEATS, {"task": task_id, "run": run}, execution_options={"populate_existing": True})
    return list(seats)


_SEATS: Final = (
    select(PanelSeat)
    .where(PanelSeat.task_id == bindparam("task"), PanelSeat.run == bindparam("run"))
    .order_by(PanelSeat.number)
)


def list_all_seats(reader: RowReader, task_id: str) -> Sequence[PanelSeat]:
    """Returns the seats of all panels that audited the task, in order."""
    seats = select(PanelSeat).where(PanelSeat.task_id == task_id)
    return reader.session.scalars(seats.order_by(PanelSeat.run, PanelSeat.number)).all()


def list_waiting_panels(reader: RowReader, determinism_class: str, operator: str) -> list[Turn]:
    """Returns the jobs with due audits that panels decide and a machine of the class can run.

    Leaves out jobs that this operator no longer audits, and audits whose panel waits for others after its seal.
    """
    asker = {"checked": classes.list_checked_classes(determinism_class), "operator": operator}
    return [Turn(*row) for row in reader.session.execute(_JOBS_WAITING, asker)]


def list_due_panels(reader: RowReader, job: str, determinism_class: str, operator: str) -> Sequence[Audit]:
    """Returns the same audits of one of these jobs, the oldest first."""
    asker = {"checked": classes.list_checked_classes(determinism_class), "operator": operator}
    return reader.session.scalars(_DUE_OF_JOB, asker | {"job": job}).all()


def list_seals_to_open(reader: RowReader, determinism_class: str, operator: str, auditor: str) -> Sequence[Audit]:
    """Returns the audits in which this machine must open its sealed answer, in the order in which its time ends."""
    checked = classes.list_checked_classes(determinism_class)
    return reader.session.scalars(_TO_OPEN, {"checked": checked, "operator": operator, "auditor": auditor}).all()


def _is_to_open(
    operator: str | BindParameter[str], auditor: str | BindParameter[str]
) -> tuple[ColumnElement[bool], ...]:
    own = PanelSeat.operator == operator, PanelSeat.auditor == auditor
    return *own, PanelSeat.state == PanelSeatState.SEALED, PanelSeat.claimed_until.is_not(None)


def renew_openings(work: Work, operator: str, auditor: str, until: float, now: float) -> None:
    """Gives a machine that computes another task until `until`, HELD_S at most, to open its sealed answers."""
    held = PanelSeat.claimed_at > now - class_checks.HELD_S, PanelSeat.claimed_until.between(now, until)
    theirs = update(PanelSeat).where(*_is_to_open(operator, auditor), *held)
    work.session.execute(theirs.values(claimed_until=until).execution_options(synchronize_session=False))


def renew_seats(work: Work, until: float) -> None:
    """Extends every seat to `until` at least: no auditor could seal or open while the service was away."""
    waiting = PanelSeat.state.in_((PanelSeatState.TAKEN, PanelSeatState.SEALED)), PanelSeat.claimed_until < until
    work.session.execute(update(PanelSeat).where(*waiting).values(claimed_until=until))


def renew_panels(work: Work, until: float) -> None:
    """Keeps every panel from lapsing before `until`: no auditor could take a seat while the service was away."""
    theirs = update(Audit).where(Audit.state == AuditState.DUE, is_panels())
    work.session.execute(theirs.values(claimed_until=until).execution_options(synchronize_session=False))


_CHECKED: Final = is_in_bound_list(Audit.determinism_class, "checked")
_OPERATOR: Final = bindparam("operator", type_=String)
_OF_PANEL: Final = (PanelSeat.task_id == Audit.task_id, PanelSeat.run == Audit.runs)
_LEFT_OR_TAKEN: Final = (PanelSeatState.TAKEN, PanelSeatState.LEFT)
_MAY_WANT: Final = (
    Audit.state == AuditState.DUE,
    _CHECKED,
    is_panels(),
    ~exists().where(PanelSeat.operator == _OPERATOR, PanelSeat.state.in_(BARRED), PanelSeat.job_id == Audit.job_id),
    ~exists().where(*_OF_PANEL, PanelSeat.operator == _OPERATOR, PanelSeat.state.not_in(_LEFT_OR_TAKEN)),
)
_JOBS_WAITING: Final = (
    select(Audit.job_id, Job.token, func.min(Audit.created_at))
    .join(Job, Job.id == Audit.job_id)
    .where(*_MAY_WANT)
    .group_by(Audit.job_id, Job.token)
)
_DUE_OF_JOB: Final = (
    select(Audit)
    .where(Audit.job_id == bindparam("job"), *_MAY_WANT)
    .order_by(Audit.created_at, Audit.task_id)
    .limit(MOST)
)
_TO_OPEN: Final = (
    select(Audit)
    .join(PanelSeat, and_(*_OF_PANEL, Audit.state == AuditState.DUE))
    .where(_CHECKED, *_is_to_open(_OPERATOR, bindparam("auditor", type_=String)))
    .order_by(PanelSeat.claimed_until)
    .limit(MOST)
)


def count_left_seats(reader: RowReader, job: str, operator: str) -> tuple[int, float]:
    """Returns how many seats of the job's panels this operator left, and when it last did."""
    left = (PanelSeat.job_id == job, PanelSeat.operator == operator, PanelSeat.state == PanelSeatState.LEFT)
    count, last = reader.session.execute(select(func.count(), func.max(PanelSeat.claimed_until)).where(*left)).one()
    return count, last or 0.0


def list_overdue_panels(reader: RowReader, now: float) -> Sequence[str]:
    """Returns the tasks with a seat whose time has passed."""
    return reader.session.scalars(_OVERDUE, {"now": now}).all()


_OVERDUE: Final = (
    select(PanelSeat.task_id)
    .join(Audit, and_(*_OF_PANEL, Audit.state == AuditState.DUE))
    .where(PanelSeat.state.in_((PanelSeatState.TAKEN, PanelSeatState.SEALED)), PanelSeat.claimed_until < NOW)
    .distinct()
    .limit(MOST)
)


def list_unfilled_panels(reader: RowReader, now: float) -> Sequence[str]:
    """Returns the tasks whose panels nobody fills: for UNHEARD_S no auditor took a seat of it.

    Nobody holds one now, and no other operator that may join took a seat of the class meanwhile: such an operator is
    there, and has others to fill first. Time in which the service itself was away does not count, and
    auditors have GRACE_S to come back then.
    """
    if not reader.session.scalar(_ANY_OLD, {"since": now - class_checks.UNHEARD_S}):
        return []
    since = audited_classes.find_last_sign(reader, now) - class_checks.UNHEARD_S
    bounds = {"since": since, "attempts": class_checks.ATTEMPTS, "now": now}
    return reader.session.scalars(_UNFILLED, bounds).all()


_SINCE: Final = bindparam("since", type_=Float)
_ITS_SEAT, _OTHER_SEAT, _OTHER_AUDIT, _BARRED_SEAT = (
    aliased(PanelSeat),
    aliased(PanelSeat),
    aliased(Audit),
    aliased(PanelSeat),
)
_IN_ITS_PANEL: Final = (_ITS_SEAT.task_id == Audit.task_id, _ITS_SEAT.run == Audit.runs)
_ANY_OLD: Final = select(exists().where(Audit.state == AuditState.DUE, Audit.created_at < _SINCE, is_panels()))
_UNFILLED: Final = (
    select(Audit.task_id)
    .where(
        Audit.state == AuditState.DUE,
        Audit.claims < bindparam("attempts"),
        Audit.created_at < _SINCE,
        or_(Audit.claimed_until.is_(None), Audit.claimed_until < NOW),  # renew_panels
        is_panels(),
        ~exists().where(
            *_IN_ITS_PANEL,
            or_(
                _ITS_SEAT.claimed_at >= _SINCE,
                _ITS_SEAT.claimed_until >= _SINCE,
                _ITS_SEAT.state == PanelSeatState.HEARD,
            ),
        ),
        ~exists().where(
            _OTHER_SEAT.task_id == _OTHER_AUDIT.task_id,
            _OTHER_AUDIT.determinism_class == Audit.determinism_class,
            or_(_OTHER_SEAT.claimed_at >= _SINCE, _OTHER_SEAT.claimed_until >= _SINCE),
            ~exists()
            .where(
                *_IN_ITS_PANEL,
                _ITS_SEAT.operator == _OTHER_SEAT.operator,
                _ITS_SEAT.state != PanelSeatState.LEFT,
            )
            .correlate(Audit, _OTHER_SEAT),
            ~exists()
            .where(
                _BARRED_SEAT.operator == _OTHER_SEAT.operator,
                _BARRED_SEAT.job_id == Audit.job_id,
                _BARRED_SEAT.state.in_(BARRED),
            )
            .correlate(Audit, _OTHER_SEAT),
        ),
    )
    .order_by(Audit.created_at)
    .limit(MOST)
)


def count_operators(reader: RowReader, now: float) -> int:
    """Returns how many operators hold tokens that may audit.

    Those that a job barred are counted: nobody brings a vote of newcomers about by being barred.
    """
    lasts = or_(ApiToken.until.is_(None), ApiToken.until > now)
    may = identities.select_tokens().where(ApiToken.role.in_((Role.AUDIT, Role.ADMIN)), lasts)
    return len({identities.operator_of(token.subject) for token in reader.session.scalars(may)})


def bound_times(work: Work, now: float) -> int:
    """Bounds the times at which seats were claimed by `now`; returns how many were later."""
    claimed = select(PanelSeat).where(PanelSeat.claimed_at > now)
    return sum(bound_row_times(row, {"claimed_at": now}) for row in work.session.scalars(claimed))


def is_signer_taken(work: Work, seat: PanelSeat, signer: Address) -> bool:
    """Returns whether another operator signs with the same key in this job."""
    others = (PanelSeat.job_id == seat.job_id, PanelSeat.operator != seat.operator, PanelSeat.signer == signer)
    return bool(work.session.scalar(select(exists().where(*others))))


def count_panels(reader: RowReader, job: Job) -> tuple[int, int, int, int, int]:
    """Returns how many panels decided, how many had two answers, wrong and withheld answers, and barred operators."""
    decided, roots = func.count(PanelSeat.root), func.count(PanelSeat.root.distinct())
    over = and_(Audit.task_id == PanelSeat.task_id, Audit.state != AuditState.DUE)
    each = select(decided.label("opened"), roots.label("roots")).join(Audit, over).where(PanelSeat.job_id == job.id)
    panels = each.group_by(PanelSeat.task_id, PanelSeat.run).having(decided > 0).subquery()
    disagreed = func.sum(case((panels.c.roots > 1, 1), else_=0))
    total, apart = reader.session.execute(select(func.count(), disagreed).select_from(panels)).one()
    bad = select(PanelSeat.state, func.count(), func.count(PanelSeat.operator.distinct()))
    rows = reader.session.execute(bad.where(PanelSeat.job_id == job.id, _any_barred()).group_by(PanelSeat.state))
    by_state = {state: count for state, count, _ in rows}
    barred = select(func.count(PanelSeat.operator.distinct())).where(PanelSeat.job_id == job.id, _any_barred())
    wrong, withheld = (by_state.get(state, 0) for state in (PanelSeatState.WRONG, PanelSeatState.WITHHELD))
    return total, int(apart or 0), wrong, withheld, reader.session.scalar(barred) or 0


def _any_barred() -> ColumnElement[bool]:
    return or_(*(PanelSeat.state == state for state in BARRED))
