"""Tasks that keep a round with its least tasks waiting, and how long it waits, by market.features.late."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import exists, select

from gradmarket.market.features.late import compute_pace, grace_s
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.features.late import paces
from requester.store import jobs, merges
from requester.store.among import NOW
from requester.store.tables import Job, Replica, Round, Task
from requester.store.work import RowReader

MOST: Final = 256


def without_backup(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that are to get a backup, with a worker that is over its expected time."""
    return [task.id for task, job in reader.session.execute(_OVERDUE, {"now": now}) if is_awaited(reader, job, task)]


_LATE: Final = exists().where(
    Replica.task_id == Task.id,
    Replica.state == ReplicaState.LEASED,
    Replica.expected_at < NOW,
    Replica.lease_until >= NOW,
)
_OVERDUE: Final = (
    select(Task, Job)
    .join(Job, Job.id == Task.job_id)
    .where(Job.state == JobState.RUNNING, _LATE, Task.state == TaskState.COMMITTING, Task.backups == 0)
    .limit(MOST)
)


def is_awaited(reader: RowReader, job: Job, task: Task) -> bool:
    """Returns whether the round that the task keeps waiting has its least tasks, and nobody is needed elsewhere.

    Where rounds wait for all tasks, a time is expected of unknown newcomers alone (moves.seating).
    """
    open_tasks = exists().where(Task.job_id == job.id, Task.state == TaskState.OPEN)
    if not jobs.load_spec(job).leaves_tasks:
        return True
    if reader.session.scalar(select(open_tasks)):
        return False
    accepted = select(Task.id).where(*merges.merged_in(job.id, task.merge_round), Task.state == TaskState.ACCEPTED)
    needed = jobs.load_spec(job).tasks_needed
    return len(reader.session.scalars(accepted.limit(needed)).all()) >= needed


def compute_grace_seconds_left(reader: RowReader, job: Job, row: Round, now: float) -> float:
    """Returns the seconds that an open round waits yet; none where it merges with its last task."""
    spec = jobs.load_spec(job)
    if not spec.leaves_tasks:
        return 0.0
    accepted = select(Task.ended_at).where(*merges.merged_in(job.id, row.number), Task.state == TaskState.ACCEPTED)
    times = reader.session.scalars(accepted.order_by(Task.ended_at)).all()
    if len(times) < spec.tasks_needed:
        return 0.0
    enough_at = max(row.opened_at, times[spec.tasks_needed - 1] or 0.0)
    usual = compute_pace(paces.of_job(reader, job.id, row.number).of_class())
    # when each answer that the round may still get is expected; committed ones are here
    waiting = Task.state.in_(merges.UNACCEPTED), Replica.state.in_(IN_FLIGHT)
    replicas = select(Replica.state, Replica.expected_at, Replica.lease_until).join(Task, Task.id == Replica.task_id)
    rows = reader.session.execute(replicas.where(*merges.merged_in(row.job_id, row.number), *waiting))
    times_expected = (
        (expected or until) if state == ReplicaState.LEASED else enough_at for state, expected, until in rows
    )
    ends = [end - enough_at for end in times_expected]
    return max(0.0, enough_at + grace_s(ends, usual, spec.deadlines.wave_s) - now)
