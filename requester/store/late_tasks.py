"""Queries about late tasks: which keep a round waiting, with a worker that is over its expected time."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import exists, select

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.store import jobs, merges
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader

MOST: Final = 256


def without_backup(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that are to get a backup: the last of a round, with a worker that is over its expected time."""
    overdue = exists().where(
        Replica.task_id == Task.id,
        Replica.state == ReplicaState.LEASED,
        Replica.expected_at < now,
        Replica.lease_until >= now,
    )
    overdue_tasks = select(Task, Job).join(Job, Job.id == Task.job_id).where(Job.state == JobState.RUNNING, overdue)
    waiting = overdue_tasks.where(Task.state == TaskState.COMMITTING, Task.backups == 0).limit(MOST)
    return [task.id for task, job in reader.session.execute(waiting) if is_last(reader, job, task)]


def is_last(reader: RowReader, job: Job, task: Task) -> bool:
    """Returns whether the round that the task keeps waiting has its least tasks, and nobody is needed elsewhere."""
    open_tasks = exists().where(Task.job_id == job.id, Task.state == TaskState.OPEN)
    if not jobs.load_spec(job).leaves_tasks or reader.session.scalar(select(open_tasks)):
        return False
    accepted = select(Task.id).where(*merges.merged_in(job.id, task.merge_round), Task.state == TaskState.ACCEPTED)
    needed = jobs.load_spec(job).tasks_needed
    return len(reader.session.scalars(accepted.limit(needed)).all()) >= needed
