"""How fast workers are in a job, as the service measures it: from a lease to its commitment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Integer, bindparam, select

from requester.store.tables import Replica, Task
from requester.store.work import RowReader

ROUNDS: Final = 8
"""Newest rounds that are measured."""
MOST: Final = 1024
"""Most commitments that are read."""


@dataclass(frozen=True, slots=True)
class Measured:
    worker: str
    determinism_class: str
    seconds: float


class Paces:
    """Measured times of a job's workers."""

    def __init__(self, measured: Iterable[Measured]) -> None:
        self._measured = list(measured)

    def of_worker(self, worker: str) -> list[float]:
        return [one.seconds for one in self._measured if one.worker == worker]

    def of_class(self, determinism_class: str | None = None) -> list[float]:
        """Returns the times of one class, or of all."""
        return [one.seconds for one in self._measured if determinism_class in (None, one.determinism_class)]


def of_job(reader: RowReader, job_id: str, number: int) -> Paces:
    """Returns the times of the last rounds up to this one, the newest ones first."""
    rows = reader.session.execute(_TIMES, {"job": job_id, "round": number})
    return Paces(Measured(worker, name, max(0.0, (end or start) - start)) for worker, name, start, end in rows)


_TIMES: Final = (
    select(Replica.worker, Replica.determinism_class, Replica.leased_at, Replica.committed_at)
    .join(Task, Task.id == Replica.task_id)
    .where(
        Task.job_id == bindparam("job"),
        Task.round.between(bindparam("round", type_=Integer) - ROUNDS, bindparam("round", type_=Integer)),
        Replica.committed_at.is_not(None),
    )
    .order_by(Task.round.desc(), Task.index.desc(), Replica.id)
    .limit(MOST)
)
