"""Queries about jobs and their rounds."""

from functools import lru_cache
from typing import Any

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from gradmarket.market.job import JobSpec, canonical
from gradmarket.market.terms import RoundState
from gradmarket.requester.store.tables import Earned, Job, Round, Task


def spec(job: Job) -> JobSpec:
    return _parsed(canonical(job.spec))


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> JobSpec:
    return JobSpec.model_validate_json(text)


def has_open_round(session: Session, job_id: str) -> bool:
    return bool(session.scalar(select(exists().where(Round.job_id == job_id, Round.state != RoundState.CLOSED))))


def latest_round(session: Session, job_id: str) -> Round | None:
    return session.scalar(select(Round).where(Round.job_id == job_id).order_by(Round.number.desc()).limit(1))


def latest_closed(session: Session, job_id: str) -> Round | None:
    closed = select(Round).where(Round.job_id == job_id, Round.state == RoundState.CLOSED)
    return session.scalar(closed.order_by(Round.number.desc()).limit(1))


def earned(session: Session, job_id: str) -> int:
    """All that the job's workers have earned, in units."""
    total: Any = session.scalar(select(func.coalesce(func.sum(Earned.units), 0)).where(Earned.job_id == job_id))
    return int(total)


def names_elsewhere(session: Session, digest: str, job_id: str) -> bool:
    """Whether another job names the blob: equal content is one blob."""
    named = or_(Round.parameters == digest, Round.updated == digest, Round.optimizer_state == digest)
    rounds = exists().where(named, Round.job_id != job_id)
    tasks = exists().where(Task.payload == digest, Task.job_id != job_id)
    return bool(session.scalar(select(or_(rounds, tasks))))
