"""The states that audits ask of workers, to repeat a window of a task from them."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, ForeignKey, Index, delete, exists, select, update
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.terms import Address, Digest
from requester.features.audits.audit_tables import Audit
from requester.store.stored_times import bound_row_times
from requester.store.tables import Base, Replica, Task
from requester.store.work import RowReader, Work


class WindowState(Base):
    """A state that an audit asks of a worker: the first one of window `number` of a task."""

    __tablename__ = "window_states"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[Digest]
    replica: Mapped[str]
    worker: Mapped[Address]
    until: Mapped[float]
    """Where it is not there by then, the audit repeats the whole task."""
    brought: Mapped[bool] = mapped_column(default=False)

    __table_args__ = (Index("window_states_of_worker", "worker"), Index("window_states_by_digest", "digest"))


AT_ONCE = 64
"""States that one worker is asked for at a time."""


def request_states(work: Work, replica: Replica, wanted: Iterable[tuple[int, Digest]], until: float) -> None:
    """Asks the replica's worker for the first states of these windows, each by its digest."""
    for number, digest in wanted:
        mine = {"replica": replica.id, "worker": replica.worker, "until": until}
        work.add(WindowState(task_id=replica.task_id, number=number, digest=digest, brought=False, **mine))


def asked_of(reader: RowReader, worker: Address, now: float) -> Sequence[WindowState]:
    """Returns the states that the worker is asked for and has not brought, the most urgent first."""
    asked = select(WindowState).where(WindowState.worker == worker, *_build_open_conditions(now))
    return reader.session.scalars(asked.order_by(WindowState.until, WindowState.task_id).limit(AT_ONCE)).all()


def find_requested_state(reader: RowReader, worker: Address, digest: str, now: float) -> WindowState | None:
    """Returns the state that the worker is asked for under this digest."""
    asked = select(WindowState).where(
        WindowState.worker == worker, WindowState.digest == digest, *_build_open_conditions(now)
    )
    return reader.session.scalars(asked.order_by(WindowState.task_id, WindowState.number).limit(1)).one_or_none()


def mark_brought(work: Work, worker: Address, digest: str, now: float) -> bool:
    """Records that the state has come; returns False where no audit asks for it any more."""
    asked = (WindowState.worker == worker, WindowState.digest == digest, *_build_open_conditions(now))
    if not work.session.scalar(select(exists().where(*asked))):
        return False
    work.session.execute(update(WindowState).where(*asked).values(brought=True))
    return True


def build_awaited_condition(now: float) -> ColumnElement[bool]:
    """Condition on an audit: a state that it needs may still come."""
    return exists().where(WindowState.task_id == Audit.task_id, *_build_open_conditions(now))


def list_silent_replicas(reader: RowReader, task_id: str) -> Sequence[str]:
    """Returns the replicas that have not brought a state requested for this task."""
    absent = (WindowState.task_id == task_id, WindowState.brought.is_(False))
    return reader.session.scalars(select(WindowState.replica).where(*absent).distinct()).all()


def is_state_needed(reader: RowReader, digest: str) -> bool:
    """Returns whether an audit that is not over has this state."""
    kept = exists().where(WindowState.digest == digest, WindowState.brought.is_(True))
    return bool(reader.session.scalar(select(kept)))


def delete_state_requests(work: Work, task_id: str) -> list[str]:
    """Asks for nothing of this task any more; returns the digests of the states that were brought."""
    rows = work.session.scalars(select(WindowState).where(WindowState.task_id == task_id)).all()
    if rows:
        work.session.execute(delete(WindowState).where(WindowState.task_id == task_id))
    return [row.digest for row in rows if row.brought]


def bound_times(work: Work, now: float) -> int:
    """Brings back ends of waits for states that are later than their rule gives; returns the number."""
    waited = select(WindowState, Task).join(Task, Task.id == WindowState.task_id).where(WindowState.until > now)
    return sum(
        bound_row_times(row, {"until": now + task.offer.lease_seconds + task.offer.upload_seconds})
        for row, task in work.session.execute(waited)
    )


def _build_open_conditions(now: float) -> tuple[ColumnElement[bool], ...]:
    return WindowState.brought.is_(False), WindowState.until >= now
