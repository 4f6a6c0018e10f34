"""Late tasks: a round with its least tasks waits by market.features.late, and asks one more worker for the last.

The first commitments decide a task, as many as its wave needs: a backup changes neither the vote nor its cost.
"""

from collections.abc import Callable, Sequence

from gradmarket.market.features.late import expected_s
from gradmarket.market.terms import ReplicaState, TaskState
from requester.feature import Feature, Lateness
from requester.features.late import late_tasks, paces
from requester.store import jobs, workers
from requester.store.in_hand import TaskInHand
from requester.store.tables import Job, Round, Worker
from requester.store.work import RowReader, Work


class MeasuredLateness(Lateness):
    """Lateness by the times that the service measures from leases to commitments."""

    def expect_seconds(self, reader: RowReader, job: Job) -> Callable[[Worker], float | None]:
        spec = jobs.load_spec(job)
        row = jobs.latest_round(reader, job.id) if spec.leaves_tasks else None
        if row is None:
            return super().expect_seconds(reader, job)
        known = paces.of_job(reader, job.id, row.number)

        def expect(worker: Worker) -> float:
            own, others = known.of_worker(worker.address), known.of_class(workers.get_class(worker, job))
            return expected_s(own, others, spec.deadlines.lease_s)

        return expect

    def list_late_tasks(self, reader: RowReader, now: float) -> Sequence[str]:
        return late_tasks.without_backup(reader, now)

    def request_backup(self, work: Work, hand: TaskInHand, now: float) -> None:
        """Opens a place for a backup, if the task is still to get one."""
        task, leased = hand.task, hand.in_state(ReplicaState.LEASED)
        overdue = any(replica.expected_at is not None and replica.expected_at < now for replica in leased)
        waits = task.state == TaskState.COMMITTING and not task.backups and overdue
        if waits and late_tasks.is_awaited(work, hand.job, task):
            work.move(task, TaskState.OPEN, backups=1)
            work.notify("assign")

    def compute_wait(self, reader: RowReader, job: Job, row: Round, now: float) -> float:
        return late_tasks.compute_grace_seconds_left(reader, job, row, now)


class LateFeature(Feature):
    name = "late"
    lateness = MeasuredLateness()
