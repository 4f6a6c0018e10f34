"""Who may read a blob of a job: what its spec's `visibility` says. Every route that serves bytes enforces it."""

from typing import Final

from sqlalchemy import ColumnElement, String, bindparam, exists, or_, select
from sqlalchemy.orm import aliased, defer

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
_DIGEST: Final = bindparam("digest", type_=String)


def to_anybody(reader: RowReader, digest: Digest) -> bool:
    """Whether a public job names the blob in its publication, or one of its rounds produced it."""
    return bool(reader.session.scalar(_TO_ANYBODY, {"digest": digest}))


def is_answer(reader: RowReader, digest: Digest) -> bool:
    """Whether the blob is an accepted payload, or a state that an audit has of a worker, and no more: none reads it.

    The digest of a payload, the task's root, is published. A worker may commit to any digest as a state's, that of a
    blob that others need too: what it has not brought, it hides from nobody.
    """
    hidden = reader.session.scalar(_HIDDEN, {"digest": digest})
    return bool(hidden) and not _of_others_too(reader, digest)


def is_holders(reader: RowReader, digest: Digest) -> bool:
    """Whether the blob is a private job's answer, which its holder computed on rows of its own: no route serves it.

    Its digest is published once it is revealed, so that it is hidden before it is booked, too: let go, as all that a
    job does not need.
    """
    theirs = any(jobs.spec(job).private for job in reader.session.scalars(_ANSWERED, {"digest": digest}))
    return theirs and not _of_others_too(reader, digest)


def _of_others_too(reader: RowReader, digest: Digest) -> bool:
    """Whether equal content was uploaded, published or made by a round: who answers with that hides it from nobody."""
    return blob_needs.stays(reader, digest) or blob_needs.made(reader, digest)


def to_worker(reader: RowReader, digest: Digest, worker: Address) -> bool:
    """Whether the worker may read the blob: any but the parameters of jobs with the visibility `requester`.

    Of these it may read what a task starts from that it holds just now, the update that led to that, and what is also
    of another job. An update is read as the parameters that it leads to: with these, it tells those before.
    """
    if not reader.session.scalar(_KEPT, {"digest": digest}):
        return True
    return bool(reader.session.scalar(_OWN, {"digest": digest, "worker": worker}))


def _parameters(of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job starts from the blob, or one of its rounds produced or published it."""
    return _named((FIRST,), of)


def _named(parts: tuple[str, ...], of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job has the blob as one of these parts, or a round of it made it; along indices."""
    published = exists().where(JobBlob.digest == _DIGEST, JobBlob.part.in_(parts), Job.id == JobBlob.job_id, of)
    made = (exists().where(column == _DIGEST, Job.id == Round.job_id, of) for column in _MADE)
    return or_(published, *made)


_TO_ANYBODY: Final = select(_named(PUBLISHED, Job.visibility == "public"))
_BOOKED: Final = Task.payload == _DIGEST
_HIDDEN: Final = select(
    or_(exists().where(_BOOKED), exists().where(WindowState.digest == _DIGEST, WindowState.brought.is_(True)))
)
_LET_GO: Final = (UnneededBlob.digest == _DIGEST, UnneededBlob.kind == unneeded.PAYLOAD)
_ANSWERED: Final = (
    select(Job)
    .options(defer(Job.spec))
    .where(or_(exists().where(_BOOKED, Task.job_id == Job.id), exists().where(*_LET_GO, UnneededBlob.job_id == Job.id)))
)
_KEPT: Final = select(_parameters(Job.visibility == "requester"))
_HOLDS: Final = (
    Replica.worker == bindparam("worker"),
    Replica.state.in_(IN_FLIGHT),
    Task.id == Replica.task_id,
    Round.job_id == Task.job_id,
    Round.number == Task.round,
)
_LED: Final = (_MAKER.published_update == _DIGEST, _MAKER.job_id == Round.job_id, _MAKER.updated == Round.parameters)
_OWN: Final = select(
    or_(
        exists().where(*_HOLDS, Round.parameters == _DIGEST),
        exists().where(*_HOLDS, *_LED),
        _parameters(Job.visibility != "requester"),
    )
)
