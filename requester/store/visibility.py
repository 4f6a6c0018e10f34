"""Who may read a blob of a job: what its spec's `visibility` says. Every route that serves bytes enforces it."""

from sqlalchemy import ColumnElement, exists, or_, select

from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, Digest
from gradmarket.requester.store.tables import Job, JobBlob, Replica, Round, Task
from gradmarket.requester.store.work import RowReader

FIRST = "publication.parameters"
PUBLISHED = ("publication.document", "publication.manifest", FIRST)
"""The parts of a publication that workers compute from."""


def to_anybody(reader: RowReader, digest: Digest) -> bool:
    """Whether a public job names the blob in its publication, or one of its rounds produced it."""
    public = Job.visibility == "public"
    return bool(reader.session.scalar(select(_named(digest, PUBLISHED, public))))


def is_answer(reader: RowReader, digest: Digest) -> bool:
    """Whether the blob is an accepted payload: no worker reads it, though its digest, the task's root, is published."""
    return bool(reader.session.scalar(select(exists().where(Task.payload == digest))))


def to_worker(reader: RowReader, digest: Digest, worker: Address) -> bool:
    """Whether the worker may read the blob: any but the parameters of jobs with the visibility `requester`.

    Of these it may read what a task starts from that it holds just now, and what is also of another job.
    """
    kept = select(_parameters(digest, Job.visibility == "requester"))
    if not reader.session.scalar(kept):
        return True
    holds = exists().where(
        Replica.worker == worker,
        Replica.state.in_(IN_FLIGHT),
        Task.id == Replica.task_id,
        Round.job_id == Task.job_id,
        Round.number == Task.round,
        Round.parameters == digest,
    )
    return bool(reader.session.scalar(select(or_(holds, _parameters(digest, Job.visibility != "requester")))))


def _parameters(digest: Digest, of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job starts from the blob, or one of its rounds produced it."""
    return _named(digest, (FIRST,), of)


def _named(digest: Digest, parts: tuple[str, ...], of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job has the blob as one of these parts, or one of its rounds produced it; along an index."""
    published = exists().where(JobBlob.digest == digest, JobBlob.part.in_(parts), Job.id == JobBlob.job_id, of)
    return or_(published, exists().where(Round.updated == digest, Job.id == Round.job_id, of))
