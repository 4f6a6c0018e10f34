"""Figures of the web page beyond the API's lists: sums over jobs, paid work, and a grid of workers and rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, bindparam, func, or_, select

from gradmarket.market.terms import AuditState, JobState, ReplicaState
from requester.features.audits.audit_tables import Audit
from requester.store.listings import has_tag
from requester.store.tables import Account, Batch, Earned, Job, JobEvent, Replica, Round, Task, Transaction, Worker
from requester.store.work import RowReader

ALIVE_S: Final = 120.0
"""Seconds since its last request within which a worker counts as present."""
GRID_ROUNDS: Final = 40
GRID_CELLS: Final = 4_000
"""Replicas that are read for the grid, at most: the newest ones."""


@dataclass(frozen=True, slots=True)
class MarketTotals:
    """`paid`: in the token's smallest unit, over all jobs. `rejected` and `failed_audits` count cheats and mistakes."""

    paid: int
    gradients: int
    rejected: int
    failed_audits: int


def load_market_totals(reader: RowReader) -> MarketTotals:
    session = reader.session
    rows = session.execute(_PAID).all()
    return MarketTotals(
        paid=sum(units * int(unit) for unit, units, _ in rows),
        gradients=sum(count for _, _, count in rows),
        rejected=session.scalar(_REJECTED) or 0,
        failed_audits=session.scalar(_FAILED_AUDITS) or 0,
    )


_PAID: Final = (
    select(Job.unit, func.sum(Earned.units), func.count())
    .join(Job, Job.id == Earned.job_id)
    .where(Earned.revoked.is_(False))
    .group_by(Job.unit)
)
_REJECTED: Final = select(func.count()).select_from(Replica).where(Replica.state == ReplicaState.REJECTED)
_FAILED_AUDITS: Final = select(func.count()).select_from(Audit).where(Audit.state == AuditState.FAILED)


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A search for jobs; an empty field takes all. `text` is part of a name, or the beginning of an id."""

    state: str = ""
    text: str = ""
    token: str | None = None
    """The name of the API token that posted them."""
    tag: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        named = func.lower(Job.spec["name"].as_string()).contains(self.text.lower(), autoescape=True)
        text = [or_(named, Job.id.startswith(self.text, autoescape=True))] if self.text else []
        state = [Job.state == self.state] if self.state else []
        tag = [has_tag(self.tag)] if self.tag else []
        return [*state, *text, *tag, *([Job.token == self.token] if self.token is not None else [])]


def list_jobs(reader: RowReader, search: JobSearch, first: int, most: int) -> Sequence[Job]:
    """Returns running jobs first, then the others, the newest first; `most` of them from number `first` on."""
    order = ((Job.state == JobState.RUNNING).desc(), Job.created_at.desc(), Job.id)
    found = select(Job).where(*search.conditions()).order_by(*order).offset(first).limit(most)
    return reader.session.scalars(found).all()


def count_jobs(reader: RowReader, search: JobSearch) -> int:
    return reader.session.scalar(select(func.count()).select_from(Job).where(*search.conditions())) or 0


def count_present_classes(reader: RowReader, now: float) -> Sequence[Row[str, int]]:
    """Returns the determinism classes of the workers that are present, each with their number; the largest first."""
    return reader.session.execute(_CLASSES, {"since": now - ALIVE_S}).all()


_CLASSES: Final = (
    select(Worker.determinism_class, func.count())
    .where(Worker.seen_at >= bindparam("since"), Worker.determinism_class != "")
    .group_by(Worker.determinism_class)
    .order_by(func.count().desc())
)


def list_round_figures(reader: RowReader, job_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """Returns number, loss, metrics, opened_at and closed_at of every round, in order."""
    return reader.session.execute(_ROUNDS, {"job": job_id}).all()


_ROUNDS: Final = (
    select(Round.number, Round.loss, Round.metrics, Round.opened_at, Round.closed_at)
    .where(Round.job_id == bindparam("job"))
    .order_by(Round.number)
)


def list_grid_replicas(reader: RowReader, job_id: str, newest: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Returns worker, round, state, task and ended audit's state of replicas in the newest rounds, the newest first.

    An audit that has not ended is not shown: a worker that knows of it can run away.
    """
    first = max(0, newest - GRID_ROUNDS + 1)
    return reader.session.execute(_GRID, {"job": job_id, "first": first}).all()


_ENDED: Final = (AuditState.PASSED, AuditState.FAILED)
_GRID: Final = (
    select(Replica.worker, Task.round, Replica.state, Task.id.label("task"), Audit.state.label("audit"))
    .join(Task, Task.id == Replica.task_id)
    .outerjoin(Audit, (Audit.task_id == Task.id) & Audit.state.in_(_ENDED))
    .where(Task.job_id == bindparam("job"), Task.round >= bindparam("first"))
    .order_by(Task.round.desc(), Replica.id)
    .limit(GRID_CELLS)
)


def sum_reserved_units(reader: RowReader, job_id: str) -> int:
    """Returns the units that are set aside for workers and not earned yet."""
    return int(reader.session.scalar(_RESERVED, {"job": job_id}) or 0)


_RESERVED: Final = select(func.sum(Account.reserved - Account.earned)).where(
    Account.job_id == bindparam("job"), Account.reserved > Account.earned
)


def newest_events(reader: RowReader, job_id: str, most: int) -> Sequence[Row[int, str, dict[str, Any], float]]:
    """Returns number, kind, body and time of the job's newest events, the newest first."""
    return reader.session.execute(_EVENTS, {"job": job_id, "most": most}).all()


_EVENTS: Final = (
    select(JobEvent.id, JobEvent.kind, JobEvent.body, JobEvent.at)
    .where(JobEvent.job_id == bindparam("job"))
    .order_by(JobEvent.id.desc())
    .limit(bindparam("most"))
)


def payments_of(reader: RowReader, task_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """Returns a task's payments: replica, worker, units, time, and the batch and transaction that carry each."""
    return reader.session.execute(_PAYMENTS, {"task": task_id}).all()


_PAYMENTS: Final = (
    select(
        *(Earned.replica_id, Earned.worker, Earned.units, Earned.revoked, Earned.at),
        *(Batch.number, Batch.state.label("batch_state"), Transaction.hash.label("tx"), Transaction.block),
    )
    .outerjoin(Batch, Batch.id == Earned.batch_id)
    .outerjoin(Transaction, Transaction.id == Batch.transaction_id)
    .where(Earned.task_id == bindparam("task"))
    .order_by(Earned.id)
)


def accounts_of(reader: RowReader, worker: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """Returns job, name, state, unit and the counts of accepted and rejected replicas of a worker's newest jobs."""
    return reader.session.execute(_ACCOUNTS, {"worker": worker}).all()


_PAID_STATES: Final = (ReplicaState.PAYABLE, ReplicaState.DIVERGED)
_ACCOUNTS: Final = (
    select(
        *(Job.id, Job.spec["name"].as_string().label("name"), Job.state),
        func.count().filter(Replica.state.in_(_PAID_STATES)).label("accepted"),
        func.count().filter(Replica.state == ReplicaState.REJECTED).label("rejected"),
        func.count().label("all"),
    )
    .join(Job, Job.id == Replica.job_id)
    .where(Replica.worker == bindparam("worker"))
    .group_by(Job.id)
    .order_by(Job.created_at.desc())
    .limit(50)
)


def newest_replicas(reader: RowReader, worker: str, most: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Returns job, task, round, state, reason and time of the worker's newest replicas that ended."""
    return reader.session.execute(_REPLICAS, {"worker": worker, "most": most}).all()


_REPLICAS: Final = (
    select(Replica.job_id, Replica.task_id, Task.round, Replica.state, Replica.reason, Replica.leased_at)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.worker == bindparam("worker"))
    .order_by(Replica.leased_at.desc())
    .limit(bindparam("most"))
)


def find_database_kind(reader: RowReader) -> str:
    """Returns the database's kind: sqlite or postgresql."""
    return reader.session.get_bind().dialect.name
