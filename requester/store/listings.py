"""Lists that are read page by page: what each holds, and one page of it; and tags, as jobs' rows have them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, defer

from gradmarket.market.terms import JobState, RoundState
from requester.store.tables import (
    Account,
    Batch,
    Earned,
    Job,
    Replica,
    Round,
    Task,
    Transaction,
    Worker,
)
from requester.store.work import RowReader

Keys = Sequence[InstrumentedAttribute[Any]]
"""The order of a list; together they are unique among its rows."""

_LISTED: Final = tuple(defer(column, raiseload=True) for column in (Task.offer, Task.plan, Task.allowed))
"""Of a task in a list none of these is shown, and to read their JSON takes longer than all else."""
_VERDICT: Final = (
    *(Replica.id, Replica.task_id, Replica.worker, Replica.state),
    *(Replica.outcome, Replica.reason, Replica.verdict_signature),
)
_ACCOUNT: Final = (
    *(Account.worker, Worker.payout, Account.earned, Account.reserved),
    *(Account.settled, Account.withdrawn, Account.at_risk),
)
_PAYMENT: Final = (
    *(Earned.id, Earned.worker, Earned.task_id, Earned.replica_id, Earned.units, Earned.digest, Earned.at),
    *(Batch.number, Batch.state.label("batch_state"), Transaction.hash.label("tx")),
    *(Task.round, Task.state, Task.reason),
)


def next_rows(
    reader: RowReader, rows: Select[Any], keys: Keys, after: Sequence[Any] | None, most: int
) -> Sequence[Any]:
    """Returns at most so many rows in the order of `keys`, those after the row with the values `after`.

    A list of entities gives entities; one of columns gives rows of these.
    """
    if after is not None:
        rows = rows.where(tuple_(*keys) > tuple_(*after))
    result = reader.session.execute(rows.order_by(*keys).limit(most))
    return result.scalars().all() if len(rows.column_descriptions) == 1 else result.all()


def select_jobs(state: JobState | None, tag: str | None = None) -> Select[Job]:
    rows = select(Job) if state is None else select(Job).where(Job.state == state)
    return rows if tag is None else rows.where(has_tag(tag))


def select_rounds(job_id: str) -> Select[Round]:
    return select(Round).where(Round.job_id == job_id)


def select_closed_rounds(job_id: str) -> Select[Round]:
    return select_rounds(job_id).where(Round.state == RoundState.CLOSED)


def select_tasks(job_id: str) -> Select[Task]:
    """Without offers, plans and thresholds."""
    return select(Task).options(*_LISTED).where(Task.job_id == job_id)


def select_verdicts(job_id: str) -> Select[*tuple[Any, ...]]:
    return select(*_VERDICT).where(Replica.job_id == job_id, Replica.outcome.is_not(None))


def select_workers(job_id: str) -> Select[*tuple[Any, ...]]:
    """The job's accounts, each with its worker's payout address."""
    return select(*_ACCOUNT).join(Worker, Worker.address == Account.worker).where(Account.job_id == job_id)


def select_payments(job_id: str) -> Select[*tuple[Any, ...]]:
    """What was earned in the job, with the batches and transactions that settle it."""
    return (
        select(*_PAYMENT)
        .join(Task, Task.id == Earned.task_id)
        .outerjoin(Batch, Batch.id == Earned.batch_id)
        .outerjoin(Transaction, Transaction.id == Batch.transaction_id)
        .where(Earned.job_id == job_id)
    )


def select_accounts(worker: str) -> Select[Account]:
    return select(Account).where(Account.worker == worker)


def select_vouchers(worker: str) -> Select[Account]:
    """The worker's accounts in which it has earned."""
    return select_accounts(worker).where(Account.voucher_signature.is_not(None))


def pack_tags(tags: Iterable[str]) -> str:
    return "".join(f"|{tag}" for tag in tags) + "|" if tags else ""


def unpack_tags(packed: str) -> list[str]:
    return packed.strip("|").split("|") if packed else []


def has_tag(tag: str) -> ColumnElement[bool]:
    """Returns the condition that a job has the tag. LIKE would ignore its case on SQLite, but not on PostgreSQL."""
    return func.replace(Job.tags, f"|{tag}|", "") != Job.tags
