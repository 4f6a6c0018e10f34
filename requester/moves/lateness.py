"""Decides when a round stops waiting for late answers. By default it waits for all tasks, as long as leases last."""

from collections.abc import Callable, Sequence

from requester.store.in_hand import TaskInHand
from requester.store.tables import Job, Round, Worker
from requester.store.work import RowReader, Work


class Lateness:
    """The feature that measures the speed of workers."""

    def expect_seconds(self, reader: RowReader, job: Job) -> Callable[[Worker], float | None]:
        """Called in the transaction that gives leases; returns the seconds within which a worker should commit.

        None: within its lease.
        """
        return lambda _worker: None

    def list_late_tasks(self, reader: RowReader, now: float) -> Sequence[str]:
        """Called by the stage `expire`; returns tasks that may need another worker beside their wave."""
        return ()

    def request_backup(self, work: Work, hand: TaskInHand, now: float) -> None:
        """Called in that stage's transaction, which has locked the task; may open one more place of it."""

    def compute_wait(self, reader: RowReader, job: Job, row: Round, now: float) -> float:
        """Called in the transaction that begins a merge; returns the seconds that the round still waits for others."""
        return 0.0
