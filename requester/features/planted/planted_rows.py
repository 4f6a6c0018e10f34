"""Planted answers as rows: tasks that an auditor computes before anybody answers them."""

from typing import Final

from sqlalchemy import ForeignKey, exists, or_, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.features import planted
from gradmarket.market.rules import classes, secrets
from gradmarket.market.terms import Digest, JobState, TaskState
from requester.store import jobs
from requester.store.tables import Base, Job, Replica, Task
from requester.store.work import RowReader

MOST: Final = 256
"""Open tasks of a job that are looked at for an idle auditor, which asks twice a second."""
UNANSWERED: Final = (TaskState.OPEN, TaskState.COMMITTING)


class PlantedAnswer(Base):
    """`root`: the auditor's result; None before it, and where somebody had answered earlier."""

    __tablename__ = "planted_answers"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    determinism_class: Mapped[str]
    root: Mapped[Digest | None]
    auditor: Mapped[str]
    claims: Mapped[int] = mapped_column(default=0)
    claimed_until: Mapped[float | None]


def find_task_to_plant(reader: RowReader, determinism_class: str, now: float) -> Task | None:
    """Returns a planted task that nobody has answered and no auditor computes, the newest round's first; or None."""
    checked = Job.determinism_class.in_(classes.list_checked_classes(determinism_class))
    running = (Job.state == JobState.RUNNING, checked)
    planting = select(Job).where(*running, Job.spec["audit"]["planted"].as_float() > 0.0)
    taken = exists().where(
        PlantedAnswer.task_id == Task.id,
        or_(PlantedAnswer.claimed_until.is_(None), PlantedAnswer.claimed_until >= now),
    )
    revealed = exists().where(Replica.task_id == Task.id, Replica.root.is_not(None))
    for job in reader.session.scalars(planting.order_by(Job.created_at)):
        spec = jobs.load_spec(job)
        share = spec.audit.planted if spec.audit is not None else 0.0
        open_ = select(Task).where(Task.job_id == job.id, Task.state.in_(UNANSWERED), ~taken, ~revealed)
        for task in reader.session.scalars(open_.order_by(Task.round.desc(), Task.index).limit(MOST)):
            link = secrets.of_task(task.secret, spec.replication.max_replicas)[-1]
            if planted.is_planted(link, task.offer_digest, share):
                return task
    return None


def is_answered(reader: RowReader, task_id: str) -> bool:
    """Returns whether any replica has committed its root to the service."""
    revealed = exists().where(Replica.task_id == task_id, Replica.root.is_not(None))
    return bool(reader.session.scalar(select(revealed)))
