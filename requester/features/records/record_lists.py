"""Statements of the lists that are read page by page."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import defer

from gradmarket.market.terms import RoundState
from requester.store.listings import select_rounds
from requester.store.tables import Account, Batch, Earned, Job, Replica, Round, Task, Transaction, Wave, Worker
from requester.store.work import RowReader

_LISTED: Final = tuple(defer(column, raiseload=True) for column in (Task.offer, Task.plan, Task.allowed))
"""Columns that a list of tasks does not show, and whose JSON takes longer to read than all else."""
_VERDICT: Final = (
    *(Replica.id, Replica.task_id, Replica.worker, Replica.state),
    *(Replica.outcome, Replica.reason, Replica.verdict_signature),
)
_ACCOUNT: Final = (
    *(Account.worker, Worker.payout, Account.earned, Account.waiting, Account.reserved),
    *(Account.settled, Account.withdrawn, Account.at_risk),
)
_PAYMENT: Final = (
    *(
        Earned.id,
        Earned.worker,
        Earned.task_id,
        Earned.replica_id,
        Earned.units,
        Earned.digest,
        Earned.at,
        Earned.waits,
    ),
    *(Batch.number, Batch.state.label("batch_state"), Transaction.hash.label("tx")),
    *(Task.round, Task.state, Task.reason),
)


def select_closed_rounds(job_id: str) -> Select[Round]:
    return select_rounds(job_id).where(Round.state == RoundState.CLOSED)


def select_tasks(job_id: str) -> Select[Task]:
    """Selects the job's tasks without offers, plans and thresholds."""
    return select(Task).options(*_LISTED).where(Task.job_id == job_id)


def select_verdicts(job_id: str) -> Select[*tuple[Any, ...]]:
    return select(*_VERDICT).where(Replica.job_id == job_id, Replica.outcome.is_not(None))


def select_workers(job_id: str) -> Select[*tuple[Any, ...]]:
    """Selects the job's accounts, each with its worker's payout address."""
    return select(*_ACCOUNT).join(Worker, Worker.address == Account.worker).where(Account.job_id == job_id)


def select_payments(job_id: str) -> Select[*tuple[Any, ...]]:
    """Selects the earnings in the job, with the batches and transactions that settle them."""
    return (
        select(*_PAYMENT)
        .join(Task, Task.id == Earned.task_id)
        .outerjoin(Batch, Batch.id == Earned.batch_id)
        .outerjoin(Transaction, Transaction.id == Batch.transaction_id)
        .where(Earned.job_id == job_id)
    )


def waves_of(reader: RowReader, task_id: str) -> Sequence[Wave]:
    return reader.session.scalars(select(Wave).where(Wave.task_id == task_id).order_by(Wave.number)).all()


def replicas_by_id(reader: RowReader, task_id: str) -> Sequence[Replica]:
    """Returns the task's replicas in the order of their ids."""
    return reader.session.scalars(select(Replica).where(Replica.task_id == task_id).order_by(Replica.id)).all()


def stakes_of(reader: RowReader, worker: str) -> Sequence[tuple[str, int | None, int, str]]:
    """Returns where the worker has a stake at risk: job, the contract's job, units at risk, and the job's unit."""
    return [(job, number, units, unit) for job, number, units, unit in reader.session.execute(_STAKES, {"of": worker})]


_STAKES: Final = (
    select(Job.id, Job.chain_job, Account.at_risk, Job.unit)
    .join(Job, Job.id == Account.job_id)
    .where(Account.worker == bindparam("of"), Account.at_risk > 0)
    .order_by(Job.created_at)
)
