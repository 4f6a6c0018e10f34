"""A worker's replicas in all jobs, and the expected earnings of one more worker of a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.orm import aliased

from gradmarket.market.features import records
from gradmarket.market.features.records import PaidAnswer
from gradmarket.market.rules.lifecycle import ONCE_ACCEPTED
from gradmarket.market.terms import ReplicaState, TaskState
from requester.store.tables import Earned, Replica, Round, Task
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class History:
    """A worker's replicas in all jobs by state; `copies`: paid answers that were revoked and that another task of the
    job had too."""

    replicas: Mapping[str, int]
    copies: int


def read_history(reader: RowReader, worker: str) -> History:
    asked = {"worker": worker}
    return History(dict(reader.session.execute(_STATES, asked).all()), reader.session.scalar(_COPIES, asked) or 0)


_STATES: Final = (
    select(Replica.state, func.count()).where(Replica.worker == bindparam("worker")).group_by(Replica.state)
)
_OTHER: Final = aliased(Task)
_COPIES: Final = (
    select(func.count())
    .select_from(Replica)
    .join(Task, Task.id == Replica.task_id)
    .where(
        Replica.worker == bindparam("worker"),
        Replica.state == ReplicaState.PAYABLE,
        Replica.root == Task.root,
        Task.state == TaskState.REVOKED,
        exists().where(
            _OTHER.job_id == Task.job_id,
            _OTHER.root == Task.root,
            _OTHER.id != Task.id,
            _OTHER.state.in_(ONCE_ACCEPTED),
        ),
    )
)


def estimate_hourly(reader: RowReader, job_id: str, now: float) -> float | None:
    """Returns the units an hour that one more worker of the job would earn, by its newest rounds; None if not known."""
    closed = reader.session.execute(_CLOSED, {"job": job_id, "since": now - records.WINDOW_S}).all()
    if not closed:
        return None
    paid = reader.session.execute(_PAID_LATELY, {"job": job_id, "first": closed[-1].number, "last": closed[0].number})
    lasted = [row.closed_at - row.opened_at for row in closed]
    return records.estimate_hourly_pay(lasted, [PaidAnswer(*row) for row in paid])


_CLOSED: Final = (
    select(Round.number, Round.opened_at, Round.closed_at)
    .where(Round.job_id == bindparam("job"), Round.closed_at >= bindparam("since"))
    .order_by(Round.number.desc())
    .limit(records.ROUNDS)
)
_PAID_LATELY: Final = (
    select(Earned.worker, Earned.units, Earned.at - Replica.leased_at)
    .join(Replica, Replica.id == Earned.replica_id)
    .join(Task, Task.id == Replica.task_id)
    .where(Task.job_id == bindparam("job"), Task.round.between(bindparam("first"), bindparam("last")))
    .where(Earned.revoked.is_(False), Earned.by_worth.is_(False))
)
