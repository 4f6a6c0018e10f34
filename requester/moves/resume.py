"""Resumes a paused job, and tries tasks whose gradient diverged again."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import JobState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.moves import task_attempts
from gradmarket.requester.store import audits
from gradmarket.requester.store.event_log import tell
from gradmarket.requester.store.session import notify
from gradmarket.requester.store.tables import Job, Round, Task
from gradmarket.requester.store.transitions import move, move_now

DIVERGED: Final = "a gradient diverged"
"""The start of the reason of a job that a divergence paused."""


def resume_job(context: Context, session: Session, job: Job) -> None:
    """Resumes the job. Raises Conflict while an audit may still find that a divergence is a lie."""
    if job.state == JobState.RUNNING:
        return
    diverged = _diverged(session, job)
    if audits.under_way(session, [task.id for task in diverged]):
        raise Conflict(f"{DIVERGED}, and its audit is not over: run an auditor (gradmarket auditor run)")
    now = context.clock()
    move_now(session, job, JobState.RUNNING, reason="", fault=None)
    session.execute(update(Task).where(Task.job_id == job.id, Task.failures > 0).values(failures=0))
    for task in diverged:
        move(task, TaskState.FINAL)
        if session.get_one(Round, (job.id, task.round)).state == "open":
            task_attempts.reissue(context, session, job, task, now)
    _go_on(session, job, now)


def after_a_lie(context: Context, session: Session, job: Job) -> None:
    """Resumes the job after an audit revoked a diverged task, unless something else pauses it."""
    paused_by_it = job.state == JobState.PAUSED and job.reason.startswith(DIVERGED)
    if paused_by_it and not _diverged(session, job):
        move_now(session, job, JobState.RUNNING, reason="")
        _go_on(session, job, context.clock())


def _diverged(session: Session, job: Job) -> Sequence[Task]:
    return session.scalars(select(Task).where(Task.job_id == job.id, Task.state == TaskState.DIVERGED)).all()


def _go_on(session: Session, job: Job, now: float) -> None:
    tell(session, job.id, "resumed", now)
    notify(session, "plan", "assign", "aggregate")
