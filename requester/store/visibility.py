"""Who may read a blob of a job: what its spec's `visibility` says. Every route that serves bytes enforces it."""

from typing import Final

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import aliased

from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, Digest
from gradmarket.requester.store import blob_needs, jobs, unneeded
from gradmarket.requester.store.tables import Job, JobBlob, Replica, Round, Task, UnneededBlob, WindowState
from gradmarket.requester.store.work import RowReader

FIRST = "publication.parameters"
PUBLISHED = ("publication.document", "publication.manifest", FIRST)
"""The parts of a publication that workers compute from."""
_MADE: Final = (Round.updated, Round.published_update)
_MAKER: Final = aliased(Round)


def to_anybody(reader: RowReader, digest: Digest) -> bool:
    """Whether a public job names the blob in its publication, or one of its rounds produced it."""
    public = Job.visibility == "public"
    return bool(reader.session.scalar(select(_named(digest, PUBLISHED, public))))


def is_answer(reader: RowReader, digest: Digest) -> bool:
    """Whether the blob is an accepted payload, or a state that an audit has of a worker, and no more: none reads it.

    The digest of a payload, the task's root, is published. A worker may commit to any digest as a state's, that of a
    blob that others need too: what it has not brought, it hides from nobody.
    """
    brought = exists().where(WindowState.digest == digest, WindowState.brought.is_(True))
    hidden = reader.session.scalar(select(or_(exists().where(Task.payload == digest), brought)))
    return bool(hidden) and not blob_needs.stays(reader, digest)


def is_holders(reader: RowReader, digest: Digest) -> bool:
    """Whether the blob is a private job's answer, which its holder computed on rows of its own: no route serves it.

    Its digest is published once it is revealed, so that it is hidden before it is booked, too: let go, as all that a
    job does not need.
    """
    booked = exists().where(Task.payload == digest, Task.job_id == Job.id)
    row = UnneededBlob
    let_go = exists().where(row.digest == digest, row.kind == unneeded.PAYLOAD, row.job_id == Job.id)
    of = select(Job).where(or_(booked, let_go))
    theirs = any(jobs.spec(job).private for job in reader.session.scalars(of))
    return theirs and not blob_needs.stays(reader, digest)


def to_worker(reader: RowReader, digest: Digest, worker: Address) -> bool:
    """Whether the worker may read the blob: any but the parameters of jobs with the visibility `requester`.

    Of these it may read what a task starts from that it holds just now, the update that led to that, and what is also
    of another job. An update is read as the parameters that it leads to: with these, it tells those before.
    """
    kept = select(_parameters(digest, Job.visibility == "requester"))
    if not reader.session.scalar(kept):
        return True
    holds = (
        Replica.worker == worker,
        Replica.state.in_(IN_FLIGHT),
        Task.id == Replica.task_id,
        Round.job_id == Task.job_id,
        Round.number == Task.round,
    )
    led = (_MAKER.published_update == digest, _MAKER.job_id == Round.job_id, _MAKER.updated == Round.parameters)
    own = or_(exists().where(*holds, Round.parameters == digest), exists().where(*holds, *led))
    return bool(reader.session.scalar(select(or_(own, _parameters(digest, Job.visibility != "requester")))))


def _parameters(digest: Digest, of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job starts from the blob, or one of its rounds produced or published it."""
    return _named(digest, (FIRST,), of)


def _named(digest: Digest, parts: tuple[str, ...], of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job has the blob as one of these parts, or a round of it made it; along indices."""
    published = exists().where(JobBlob.digest == digest, JobBlob.part.in_(parts), Job.id == JobBlob.job_id, of)
    made = (exists().where(column == digest, Job.id == Round.job_id, of) for column in _MADE)
    return or_(published, *made)
