"""Decides whether a blob stays or is still needed; asked before a blob is dropped."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Integer,
    String,
    and_,
    bindparam,
    exists,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import InstrumentedAttribute

from gradmarket.market.terms import Digest, TaskState
from requester.store.among import is_in_bound_list
from requester.store.tables import Job, JobBlob, Round, Task, UnservedBlob, UploadedBlob
from requester.store.work import RowReader, Work

STARTED_FROM: Final = ("publication.parameters", "spec.parameters", "facts.memory")
"""The blobs that a job's first round is merged from."""
PUBLISHED: Final = "publication.%"


def mark_uploaded(work: Work, digests: Iterable[Digest], now: float) -> bool:
    """Keeps these blobs; returns whether any is new among the kept ones.

    The caller has locked them (moves.blob_cleanup), and the service has their bytes.
    """
    wanted = set(digests)
    new = wanted.difference(work.session.scalars(select(UploadedBlob.digest).where(UploadedBlob.digest.in_(wanted))))
    work.add(*(UploadedBlob(digest=digest, at=now) for digest in new))
    return bool(new)


def mark_unserved(work: Work, digest: Digest, token: str, now: float) -> None:
    """Keeps the blob, for this token's jobs to measure on. The caller has locked it, as above."""
    if not unserved_of(work, digest, token):
        work.add(UnservedBlob(digest=digest, token=token, at=now))


def unserved_of(reader: RowReader, digest: Digest, token: str) -> bool:
    """Whether this token uploaded the blob unserved."""
    return reader.get(UnservedBlob, (digest, token)) is not None


def is_unserved(reader: RowReader, digest: str) -> bool:
    """Returns whether the blob was uploaded unserved, and no upload, publication or round has equal content."""
    return bool(reader.session.scalar(select(IS_UNSERVED), {"digest": digest}))


def is_uploaded_or_published(reader: RowReader, digest: str) -> bool:
    """Returns whether the blob was uploaded or a job is published with it: no answer of equal content takes it away.

    A blob that a job or a manifest merely names does not count: any submitter may name the digest of another's answer.
    """
    return bool(reader.session.scalar(_STAYS, {"digest": digest}))


DIGEST: Final = bindparam("digest", type_=String)
_OF_ROUNDS: Final = (Round.parameters, Round.updated, Round.published_update, Round.optimizer_state)
_IS_PUBLISHED: Final = JobBlob.part.like(PUBLISHED)
_UNSERVED: Final = exists().where(UnservedBlob.digest == DIGEST)
_IS_OPEN: Final = or_(
    exists().where(JobBlob.digest == DIGEST, _IS_PUBLISHED), exists().where(UploadedBlob.digest == DIGEST)
)
_STAYS: Final = select(or_(_IS_OPEN, _UNSERVED))


def is_made_by_round(reader: RowReader, digest: str) -> bool:
    """Whether some round's parameters, update or memory are the blob: an answer of equal content does not hide it."""
    return bool(reader.session.scalar(_MADE, {"digest": digest}))


def needs_payload(reader: RowReader, digest: str) -> bool:
    """Returns whether a merge or a replay needs the payload, or a divergence is shown with it; equal content is one
    blob.
    """
    return bool(reader.session.scalar(_NEEDS_PAYLOAD, {"digest": digest}))


_WAITS: Final = or_(
    Task.state.in_([TaskState.ACCEPTED, TaskState.DIVERGED]),
    and_(Task.used, exists().where(Job.id == Task.job_id, Job.replay_from <= Task.merge_round)),
)
_NEEDS_PAYLOAD: Final = select(exists().where(Task.payload == DIGEST, _WAITS))


def list_needed_blobs(reader: RowReader, blobs: Collection[str], payloads: Collection[str]) -> set[str]:
    """Returns, by one query, those of the blobs that stay, and those of the payloads that are needed or that a round
    made too, as above.
    """
    return set(reader.session.scalars(_KEPT, {"blobs": blobs, "payloads": payloads}))


_KEPT: Final[CompoundSelect[Any]] = union_all(
    select(JobBlob.digest).where(is_in_bound_list(JobBlob.digest, "blobs"), _IS_PUBLISHED),
    select(UploadedBlob.digest).where(is_in_bound_list(UploadedBlob.digest, "blobs")),
    select(UnservedBlob.digest).where(is_in_bound_list(UnservedBlob.digest, "blobs")),
    select(Task.payload).where(is_in_bound_list(Task.payload, "payloads"), _WAITS),
    *(select(column).where(is_in_bound_list(column, "payloads")) for column in _OF_ROUNDS),
)


def needs_parameters(reader: RowReader, digest: str, job_id: str, after: int, every: int) -> bool:
    """Whether a round of the job after `after`, a replay, a checkpoint, another job or a job's start needs it."""
    about = {"digest": digest, "job": job_id, "after": after, "every": every}
    return bool(reader.session.scalar(_NEEDS_PARAMETERS, about))


def needs_update(reader: RowReader, digest: str, job_id: str, after: int) -> bool:
    """Whether a round of the job after `after`, or another job, publishes the update."""
    return bool(reader.session.scalar(_NEEDS_UPDATE, {"digest": digest, "job": job_id, "after": after}))


def names_blob(reader: RowReader, digest: str) -> bool:
    """Whether any round or any job's start names the blob."""
    return bool(reader.session.scalar(_NAMES_BLOB, {"digest": digest}))


def _in_rounds(column: InstrumentedAttribute[Any], *where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition on one column, so that its index finds the round."""
    return exists().where(column == DIGEST, *where)


_PRODUCED: Final = (Round.updated, Round.optimizer_state)
_NAMED_IN: Final = (*_PRODUCED, Round.parameters)
_STARTS: Final = exists().where(JobBlob.digest == DIGEST, JobBlob.part.in_(STARTED_FROM))
_OF_JOB: Final = Round.job_id == bindparam("job")
_OF_OTHERS: Final = Round.job_id != bindparam("job")
_AFTER: Final = Round.number > bindparam("after", type_=Integer)
_EVERY: Final = (Round.number + 1) % bindparam("every", type_=Integer) == 0
_IS_BEST: Final = exists().where(Job.id == Round.job_id, Job.best_round == Round.number)
_IS_KEPT: Final = or_(_AFTER, _EVERY, _IS_BEST, Round.optimizer_state != "")
_NEEDS_PARAMETERS: Final = select(
    or_(
        *(_in_rounds(column, _OF_JOB, _IS_KEPT) for column in _PRODUCED),
        *(_in_rounds(column, _OF_OTHERS) for column in _NAMED_IN),
        _STARTS,
    )
)
_NEEDS_UPDATE: Final = select(_in_rounds(Round.published_update, or_(_OF_OTHERS, _AFTER)))
_IS_MADE: Final = or_(*map(_in_rounds, _OF_ROUNDS))
_MADE: Final = select(_IS_MADE)
IS_SHARED: Final = or_(_IS_OPEN, _IS_MADE)
"""Whether equal content was uploaded openly, published or made by a round."""
IS_UNSERVED: Final = and_(_UNSERVED, not_(IS_SHARED))
_NAMES_BLOB: Final = select(or_(*map(_in_rounds, _NAMED_IN), _STARTS))


@dataclass(frozen=True)
class UpdateStep:
    """An update, and the parameters before and after it, by digest."""

    before: Digest
    update: Digest
    updated: Digest


def leading_to(reader: RowReader, job_id: str, number: int, most: int) -> list[UpdateStep]:
    """Returns the last `most` updates that lead to the parameters after round `number`, the newest first."""
    found = select(Round).where(Round.job_id == job_id, Round.number <= number, Round.number >= number - most)
    rows = {row.number: row for row in reader.session.scalars(found)}
    steps = []
    for after in range(number, number - most, -1):
        row = rows.get(after)
        before = _find_changed_parameters(rows, after)
        if row is None or row.updated is None or row.published_update is None or before is None:
            break
        steps.append(UpdateStep(before, row.published_update, row.updated))
    return steps


def _find_changed_parameters(rows: dict[int, Round], number: int) -> Digest | None:
    """Returns the parameters that a round's merge changes: with an overlap, its tasks start from older ones."""
    if number == 0 and 0 in rows:
        return rows[0].parameters
    return rows[number - 1].updated if number - 1 in rows else None


def list_updates_between(reader: RowReader, job_id: str, after: int, through: int) -> Sequence[str]:
    """Returns the updates of the rounds after `after` up to `through`."""
    own = (Round.job_id == job_id, Round.number > after, Round.number <= through)
    return [digest for digest in reader.session.scalars(select(Round.published_update).where(*own)) if digest]
