"""Asks one more worker for a task that keeps a round waiting and is late by measured times (rules.stragglers).

As many as its wave needs decide the task, whoever commits first: a backup changes neither the vote nor what it costs.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import exists, select

from gradmarket.market.terms import JobState, ReplicaState, TaskState
from gradmarket.requester.store import jobs
from gradmarket.requester.store.in_hand import TaskInHand
from gradmarket.requester.store.tables import Job, Replica, Task
from gradmarket.requester.store.work import RowReader, Work

MOST: Final = 256


def late(reader: RowReader, now: float) -> Sequence[str]:
    """Returns tasks that are to get a backup: the last of a round, with a worker that is over its expected time."""
    overdue = exists().where(
        Replica.task_id == Task.id,
        Replica.state == ReplicaState.LEASED,
        Replica.expected_at < now,
        Replica.lease_until >= now,
    )
    found = select(Task, Job).join(Job, Job.id == Task.job_id).where(Job.state == JobState.RUNNING, overdue)
    waiting = found.where(Task.state == TaskState.COMMITTING, Task.backups == 0).limit(MOST)
    return [task.id for task, job in reader.session.execute(waiting) if _is_last(reader, job, task)]


def ask(work: Work, hand: TaskInHand, now: float) -> None:
    """Opens a place for a backup, if the task is still to get one."""
    task = hand.task
    overdue = any(_overdue(replica, now) for replica in hand.in_state(ReplicaState.LEASED))
    if task.state == TaskState.COMMITTING and not task.backups and overdue and _is_last(work, hand.job, task):
        work.move(task, TaskState.OPEN, backups=1)
        work.notify("assign")


def overtaken(replicas: Iterable[Replica], now: float) -> list[Replica]:
    """Returns those that were late when others answered: it costs them a strike, so that nobody stalls for nothing."""
    return [replica for replica in replicas if _overdue(replica, now)]


def _overdue(replica: Replica, now: float) -> bool:
    return replica.expected_at is not None and replica.expected_at < now


def _is_last(reader: RowReader, job: Job, task: Task) -> bool:
    """Returns whether the round that the task keeps waiting has its least tasks, and nobody is needed elsewhere."""
    open_tasks = exists().where(Task.job_id == job.id, Task.state == TaskState.OPEN)
    if not jobs.spec(job).leaves_tasks or reader.session.scalar(select(open_tasks)):
        return False
    accepted = select(Task.id).where(*jobs.merged_in(job.id, task.merge_round), Task.state == TaskState.ACCEPTED)
    needed = jobs.spec(job).tasks_needed
    return len(reader.session.scalars(accepted.limit(needed)).all()) >= needed
