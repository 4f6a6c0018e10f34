"""The readers of a job's blobs, by its spec's `visibility`. Every route that serves bytes enforces them."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, CompoundSelect, Executable, bindparam, exists, or_, select, union_all
from sqlalchemy.orm import aliased, defer

from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, Digest
from requester.store import blob_needs, jobs, unneeded
from requester.store.among import is_in_bound_list
from requester.store.tables import Job, JobBlob, Replica, Round, Task, UnneededBlob, UnservedBlob
from requester.store.work import RowReader

FIRST = ("publication.parameters", "facts.memory")
"""The blobs that a job starts from; the optimizer's memory may have the parameters in it."""
PUBLISHED = ("publication.document", "publication.manifest", *FIRST)
"""The parts of a publication that workers and public auditors compute from."""
_MADE: Final = (Round.updated, Round.published_update)
_MAKER: Final = aliased(Round)
_DIGEST: Final = blob_needs.DIGEST
NOBODY: Final = Address("")


@dataclass(frozen=True)
class Access:
    """The readers of a blob: see `load_access`."""

    unserved: bool
    """It was uploaded to be measured on and shown to no reader."""
    holders: bool
    """It is a private job's answer, which its holder computed on rows of its own, and no more: no route serves it."""
    answer: bool
    """It is an accepted payload, or a state that an audit has of a worker, and no more: no worker reads it."""
    to_anybody: bool
    """A public job names it in its publication, or one of its rounds produced it."""
    to_worker: bool
    """It belongs to no `requester` job's parameters, or this worker may read it all the same."""

    @property
    def to_requester(self) -> bool:
        """An API token may read it."""
        return not (self.holders or self.unserved)


def load_access(reader: RowReader, digest: Digest, worker: Address = NOBODY) -> Access:
    """Returns the readers of the blob, by one query.

    A holder's answer is hidden even before it is booked: its digest is published once it is revealed. A worker may
    commit to any digest as a state's, even that of a blob that others need: a state that it has not brought hides
    nothing, and no answer hides a blob that was uploaded, published or made by a round. Unserved uploads hide no answer
    from auditors. A worker may read those parameters of a `requester` job that a task it holds now starts from, the
    update that led to them, and any that another job has too. An update is restricted like the parameters that it leads
    to: both together reveal the parameters before.
    """
    access = _build_access_query(reader.session.info["features"])
    found = reader.session.execute(access, {"digest": digest, "worker": worker}).one()
    alone = not found.shared
    answered = reader.session.scalars(_ANSWERED, {"digest": digest}) if alone and found.answered else ()
    return Access(
        unserved=found.unserved and not found.hidden,
        holders=any(not jobs.load_spec(job).repeatable for job in answered),
        answer=alone and found.hidden,
        to_anybody=found.to_anybody,
        to_worker=not found.kept or found.own,
    )


def list_restricted_blobs(reader: RowReader, digests: Collection[Digest]) -> set[Digest]:
    """Returns those of many blobs that an API token may be refused: all that are unserved or an answer."""
    return set(reader.session.scalars(_NARROWED, {"blobs": digests}))


def _build_parameters_condition(of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition: such a job starts from the blob, or one of its rounds produced or published it."""
    return _build_named_condition(FIRST, of)


def _build_named_condition(parts: tuple[str, ...], of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Returns the condition: such a job has the blob as one of these parts, or a round of it made it; along indices."""
    published = exists().where(JobBlob.digest == _DIGEST, JobBlob.part.in_(parts), Job.id == JobBlob.job_id, of)
    made = (exists().where(column == _DIGEST, Job.id == Round.job_id, of) for column in _MADE)
    return or_(published, *made)


_BOOKED: Final = Task.payload == _DIGEST
_LET_GO: Final = (UnneededBlob.digest == _DIGEST, UnneededBlob.kind == unneeded.PAYLOAD)
_ANSWERED: Final = (
    select(Job)
    .options(defer(Job.spec))
    .where(or_(exists().where(_BOOKED, Task.job_id == Job.id), exists().where(*_LET_GO, UnneededBlob.job_id == Job.id)))
)
_NARROWED: Final[CompoundSelect[Any]] = union_all(
    select(UnservedBlob.digest).where(is_in_bound_list(UnservedBlob.digest, "blobs")),
    select(Task.payload).where(is_in_bound_list(Task.payload, "blobs")),
    select(UnneededBlob.digest).where(is_in_bound_list(UnneededBlob.digest, "blobs")),
)
_HOLDS: Final = (
    Replica.worker == bindparam("worker"),
    Replica.state.in_(IN_FLIGHT),
    Task.id == Replica.task_id,
    Round.job_id == Task.job_id,
    Round.number == Task.round,
)
_LED: Final = (_MAKER.published_update == _DIGEST, _MAKER.job_id == Round.job_id, _MAKER.updated == Round.parameters)
_OWN: Final = or_(
    exists().where(*_HOLDS, Round.parameters == _DIGEST),
    exists().where(*_HOLDS, *_LED),
    _build_parameters_condition(Job.visibility != "requester"),
)


@cache
def _build_access_query(features: tuple[Any, ...]) -> Executable:
    """Returns the query of all that `load_access` asks; the features may hide a blob too."""
    hidden = [exists().where(_BOOKED)]
    hidden += [condition for one in features if (condition := one.hide_blob(_DIGEST)) is not None]
    return select(
        blob_needs.IS_UNSERVED.label("unserved"),
        or_(exists().where(_BOOKED), exists().where(*_LET_GO)).label("answered"),
        or_(*hidden).label("hidden"),
        blob_needs.IS_SHARED.label("shared"),
        _build_named_condition(PUBLISHED, Job.visibility == "public").label("to_anybody"),
        _build_parameters_condition(Job.visibility == "requester").label("kept"),
        _OWN.label("own"),
    )
