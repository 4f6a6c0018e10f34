"""Handles leases that end without an answer: their places open again, unless the job itself is found at fault.

A merge that fails is reported on its job, and tried again at every sweep.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import SOON
from gradmarket.market.terms import JobState, TaskState
from gradmarket.market.wire.poll import StepFault
from requester.context import Context
from requester.feature import features_of
from requester.moves.ending import cancel_if_idle, strike_replicas
from requester.store import ballots, progress, workers
from requester.store.in_hand import TaskInHand
from requester.store.locks import lock_row
from requester.store.tables import Job, Replica
from requester.store.work import RowReader, Work, record_event


def record_fault(context: Context, work: Work, hand: TaskInHand, replica: Replica, fault: StepFault) -> None:
    """Records the fault with which a worker gave its lease back; it costs a strike unless the job is known at fault."""
    replica.fault = fault.model_dump(mode="json")
    known = hand.job.fault
    if known is None or StepFault(**known["fault"]).place != fault.place:
        strike_replicas(context, work, hand.task, [replica])
    if not is_job_at_fault(context, work, hand):
        reopen_task(context, work, hand)


def is_job_at_fault(context: Context, work: Work, hand: TaskInHand, in_vain: bool = False) -> bool:
    """Returns whether a feature finds the job at fault, so that no further worker is asked for the attempt.

    `in_vain`: no worker came that could still be asked.
    """
    return any(feature.blame_job(context, work, hand, in_vain) for feature in features_of(work))


def somebody_comes(context: Context, reader: RowReader, hand: TaskInHand) -> bool:
    """Returns whether a worker that is at work in the job now could take the task once it is free."""
    now = context.clock()
    busy, mixable = workers.at_work(reader, hand.job.id, now), ballots.list_mixable_classes(reader, hand.job, now)
    opening = progress.opening_for(hand.job, hand.task, hand.replicas, mixable)
    candidates = progress.candidates_of(reader, hand.job, busy, now)
    return any(assignment.why_not(candidate, opening) in SOON for candidate in candidates)


def reopen_task(context: Context, work: Work, hand: TaskInHand) -> None:
    """Opens the task again, since a place in its wave is free; a backup of the task takes that place.

    A task that was called off ends instead: after the end of its job an event tells of that, with which it is logged.
    """
    task = hand.task
    if cancel_if_idle(context, work, hand):
        if task.state == TaskState.CANCELLED and hand.job.ended_at is not None:
            record_event(work, task.job_id, "task_cancelled", context.clock(), task=task.id, round=task.round)
        return
    task.backups = max(0, task.backups - 1)
    if task.state == TaskState.COMMITTING:
        work.move(task, TaskState.OPEN)
    work.notify("assign", "close")


FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def report_merge_failure(context: Context, job_id: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Reports why the block fails, once for each reason, and raises its error again; skips errors in `but`."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno in FULL:
            why = "the disk of the service's data folder (GRADMARKET_DATA) is full: make room on it"
        reason = f"the newest round cannot be merged: {why}".replace("\0", "")[:1000]
        with context.begin() as work:
            job = lock_row(work, Job, job_id)
            if job.state == JobState.RUNNING and job.reason != reason:
                job.reason = reason
                record_event(work, job_id, "merge_failed", context.clock(), reason=reason)
        raise
