"""Who may read a blob of a job: what its spec's `visibility` says, held by every door that serves bytes."""

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session

from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, Digest
from gradmarket.requester.store.tables import Job, Replica, Round, Task

PUBLISHED = ("document", "manifest", "parameters")
"""What a publication names and workers compute from."""


def to_anybody(session: Session, digest: Digest) -> bool:
    """Whether a public job names the blob: in its publication, or as what a round made."""
    named = (Job.publication[part].as_string() == digest for part in PUBLISHED)
    made = exists().where(Round.job_id == Job.id, Round.updated == digest)
    found = exists().where(Job.visibility == "public", or_(*named, made))
    return bool(session.scalar(select(found)))


def to_worker(session: Session, digest: Digest, worker: Address) -> bool:
    """Everything, but for what the rounds of a job made that keeps it to its requester.

    Of that, a worker reads what a task starts from that it holds just now.
    """
    kept = select(_made(digest, Job.visibility == "requester"))
    if not session.scalar(kept):
        return True
    holds = exists().where(
        Replica.worker == worker,
        Replica.state.in_(IN_FLIGHT),
        Task.id == Replica.task_id,
        Round.job_id == Task.job_id,
        Round.number == Task.round,
        Round.parameters == digest,
    )
    return bool(session.scalar(select(or_(holds, _made(digest, Job.visibility != "requester")))))


def _made(digest: Digest, *jobs: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a round of such a job made the blob."""
    return exists().where(Round.updated == digest, Job.id == Round.job_id, *jobs)
