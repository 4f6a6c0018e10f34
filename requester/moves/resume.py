"""Resumes a paused job, and tries tasks whose gradient diverged again."""

from typing import Final

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import JobState, TaskState
from requester.context import Context
from requester.moves import task_attempts
from requester.store import audits, in_hand, tasks
from requester.store.event_log import record_event
from requester.store.tables import Job
from requester.store.work import Work

DIVERGED: Final = "a gradient diverged"
"""The start of the reason of a job that a divergence paused."""


def resume_job(context: Context, work: Work, job: Job) -> None:
    """Resumes the job. Raises Conflict while an audit may still find that a divergence is a lie."""
    if job.state == JobState.RUNNING:
        return
    diverged = tasks.list_diverged_tasks(work, job.id)
    if audits.under_way(work, [task.id for task in diverged]):
        raise Conflict(f"{DIVERGED}, and its audit is not over: run an auditor (gradmarket auditor run)")
    now = context.clock()
    work.set_state_now(job, JobState.RUNNING, reason="", fault=None)
    tasks.forgive_failures(work, job.id)
    for hand in in_hand.of_tasks(work, diverged).values():
        work.move(hand.task, TaskState.FINAL)
        task_attempts.reissue_task(context, work, hand, now)
    _go_on(work, job, now)


def after_a_lie(context: Context, work: Work, job: Job) -> None:
    """Resumes the job after an audit revoked a diverged task, unless something else pauses it."""
    paused_by_it = job.state == JobState.PAUSED and job.reason.startswith(DIVERGED)
    if paused_by_it and not tasks.list_diverged_tasks(work, job.id):
        work.set_state_now(job, JobState.RUNNING, reason="")
        _go_on(work, job, context.clock())


def _go_on(work: Work, job: Job, now: float) -> None:
    record_event(work, job.id, "resumed", now)
    work.notify("plan", "assign", "aggregate")
