"""A paused job goes on: tasks whose gradient diverged are tried again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from gradmarket.market.terms import JobState, TaskState
from gradmarket.requester.context import Context
from gradmarket.requester.stages import plan
from gradmarket.requester.store.events import tell
from gradmarket.requester.store.session import ring
from gradmarket.requester.store.tables import Job, Round, Task
from gradmarket.requester.store.transitions import move


def resume_job(context: Context, session: Session, job: Job) -> None:
    if job.state == JobState.RUNNING:
        return
    now = context.clock()
    move(session, job, JobState.RUNNING, reason="")
    diverged = select(Task).where(Task.job_id == job.id, Task.state == TaskState.DIVERGED)
    for task in session.scalars(diverged).all():
        move(session, task, TaskState.FINAL)
        if session.get_one(Round, (job.id, task.round)).state == "open":
            plan.reissue(context, session, job, task, now)
    tell(session, job.id, "resumed", now)
    ring(session, "plan", "assign", "aggregate")
