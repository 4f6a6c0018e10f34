"""Whether a blob stays or is still needed: asked before it is dropped."""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.terms import Digest, TaskState
from gradmarket.requester.store.tables import Job, JobBlob, Round, Task, UploadedBlob
from gradmarket.requester.store.work import RowReader, Work

STARTED_FROM: Final = ("publication.parameters", "spec.parameters", "facts.memory")
"""The blobs that a job's first round is merged from."""
PUBLISHED: Final = "publication.%"


def uploaded(work: Work, digests: Iterable[Digest], now: float) -> None:
    """Has these blobs stay. The caller has locked them (moves.blob_cleanup), and whoever asks has their bytes."""
    wanted = set(digests)
    known = work.session.scalars(select(UploadedBlob.digest).where(UploadedBlob.digest.in_(wanted)))
    work.add(*(UploadedBlob(digest=digest, at=now) for digest in wanted.difference(known)))


def stays(reader: RowReader, digest: str) -> bool:
    """Whether somebody uploaded the blob or a job is published with it: no answer of equal content takes it away.

    What a job or a manifest merely names is not in this: anybody may name the digest of another's answer.
    """
    published = exists().where(JobBlob.digest == digest, JobBlob.part.like(PUBLISHED))
    return bool(reader.session.scalar(select(or_(published, exists().where(UploadedBlob.digest == digest)))))


def needs_payload(reader: RowReader, digest: str) -> bool:
    """Whether a merge or a replay needs the payload, or a divergence is shown with it; equal content is one blob."""
    waiting = Task.state.in_([TaskState.ACCEPTED, TaskState.DIVERGED])
    replayed = and_(Task.used, exists().where(Job.id == Task.job_id, Job.replay_from <= Task.merge_round))
    return bool(reader.session.scalar(select(exists().where(Task.payload == digest, or_(waiting, replayed)))))


def needs_parameters(reader: RowReader, digest: str, job_id: str, after: int, every: int) -> bool:
    """Whether a round of the job after `after`, a replay, a checkpoint, another job or a job's start needs it."""
    kept = or_(Round.number > after, (Round.number + 1) % every == 0, Round.optimizer_state != "")
    own = (_in_rounds(column, digest, Round.job_id == job_id, kept) for column in _PRODUCED)
    others = (_in_rounds(column, digest, Round.job_id != job_id) for column in (*_PRODUCED, Round.parameters))
    return bool(reader.session.scalar(select(or_(*own, *others, _starts(digest)))))


def needs_update(reader: RowReader, digest: str, job_id: str, after: int) -> bool:
    """Whether a round of the job after `after`, or another job, publishes the update."""
    kept = or_(Round.job_id != job_id, Round.number > after)
    return bool(reader.session.scalar(select(_in_rounds(Round.published_update, digest, kept))))


def names_blob(reader: RowReader, digest: str) -> bool:
    """Whether any round or any job's start names the blob."""
    rounds = (_in_rounds(column, digest) for column in (*_PRODUCED, Round.parameters))
    return bool(reader.session.scalar(select(or_(*rounds, _starts(digest)))))


_PRODUCED: Final = (Round.updated, Round.optimizer_state)


def _in_rounds(column: InstrumentedAttribute[Any], digest: str, *where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition on one column, so that its index finds the round."""
    return exists().where(column == digest, *where)


def _starts(digest: str) -> ColumnElement[bool]:
    return exists().where(JobBlob.digest == digest, JobBlob.part.in_(STARTED_FROM))
