"""The rows of parts of merges that several processes do."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    String,
    bindparam,
    cast,
    column,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    table,
    text,
    true,
    update,
)
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import Digest, JobState, RoundState
from requester.store.locks import hash_lock_name
from requester.store.session import is_shared
from requester.store.tables import Base, BigKey, Job, JobBlob, Round, Task
from requester.store.work import RowReader, Work

EVER: Final = 2**62
"""After the last round."""
AT_ONCE: Final = 4
"""Parts requested at a time, at every sweep and whenever one is done: other messages do not wait for all."""
_TO_DO: Final = text("result IS NULL")


class MergePart(Base):
    """A part of a merge that several processes do: a range of the flat payload (market.features.part_merges).

    A row without a result is the request; a process that takes it and is killed leaves it unchanged.
    """

    __tablename__ = "merge_parts"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    """PostgreSQL never uses one again: a result computed for a merge that was taken back finds no row."""
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    step: Mapped[bool]
    """Whether it takes the optimizer's step; else it sums squares, for the clip."""
    start: Mapped[int]
    stop: Mapped[int]
    factor: Mapped[float | None]
    """The clip's factor, by which a step multiplies gradients; None without a clip."""
    result: Mapped[Digest | None]
    """Its squares, or its parameters and buffers; empty once they are joined."""
    memory: Mapped[Digest | None]
    """Its part of the optimizer's memory after the step."""
    loss: Mapped[float | None]

    __table_args__ = (
        Index("merge_parts_of_round", "job_id", "round"),
        Index("merge_parts_to_do", "id", sqlite_where=_TO_DO, postgresql_where=_TO_DO),
        Index("merge_parts_by_result", "result"),
        Index("merge_parts_by_memory", "memory"),
    )


def find_requested(reader: RowReader, called: str) -> Sequence[str]:
    """Returns parts that no process does yet, of rounds that are being merged and jobs that run; the oldest first.

    called: the text before a part's number in the name of the lock that a process holds (`locks.alone`).
    """
    asked = select(MergePart.id).where(MergePart.result.is_(None))
    asked = asked.join(Round, (Round.job_id == MergePart.job_id) & (Round.number == MergePart.round))
    asked = asked.join(Job, Job.id == MergePart.job_id)
    asked = asked.where(Round.state == RoundState.MERGING, Job.state == JobState.RUNNING)
    asked = asked.where(is_not_locked(reader, called + cast(MergePart.id, String)))
    return [str(number) for number in reader.session.scalars(asked.order_by(MergePart.id).limit(AT_ONCE))]


def job_of(reader: RowReader, part: int) -> str | None:
    """Returns the job of a part; None where the part is gone."""
    return reader.session.scalar(select(MergePart.job_id).where(MergePart.id == part))


def of_round(reader: RowReader, job_id: str, number: int) -> Sequence[MergePart]:
    """Returns the parts of one merge: squares, then steps, each in the order of their ranges."""
    rows = select(MergePart).where(MergePart.job_id == job_id, MergePart.round == number)
    return reader.session.scalars(rows.order_by(MergePart.step, MergePart.start)).all()


def steps_of(reader: RowReader, job_id: str, number: int) -> Sequence[MergePart]:
    """Returns the steps of one merge. Raises Conflict where they are gone: joined without them, a memory is the first
    round's."""
    rows = [row for row in of_round(reader, job_id, number) if row.step]
    if not rows:
        raise Conflict(f"the parts of round {number} are dropped: another process merged the round")
    return rows


def request_parts(
    work: Work, job_id: str, number: int, step: bool, ranges: Iterable[slice], factor: float | None = None
) -> None:
    """Requests parts, unless they are requested already. The caller has locked the job.

    On PostgreSQL a process that lost its connection has also lost the lock on the job's merges, and does not know it
    yet.
    """
    if any(row.step == step for row in of_round(work, job_id, number)):
        return
    about = {"job_id": job_id, "round": number, "step": step, "factor": factor}
    for part in ranges:
        work.add(MergePart(start=part.start, stop=part.stop, **about))


def store_result(work: Work, part: int, result: Digest, memory: Digest | None, loss: float | None) -> bool:
    """Returns False where the part has a result, or is gone."""
    waits = update(MergePart).where(MergePart.id == part, MergePart.result.is_(None))
    found = work.session.execute(waits.values(result=result, memory=memory, loss=loss).returning(MergePart.id))
    return found.first() is not None


def delete_parts(work: Work, job_id: str, since: int, until: int | None = None) -> list[str | None]:
    """Deletes the parts of rounds from `since` up to before `until`; returns their blobs."""
    work.flush()
    between = {"job": job_id, "since": since, "until": EVER if until is None else until}
    return [digest for row in work.connection().execute(_DELETED, between) for digest in row]


_DELETED: Final = (
    delete(MergePart)
    .where(
        MergePart.job_id == bindparam("job"),
        MergePart.round >= bindparam("since"),
        MergePart.round < bindparam("until"),
    )
    .returning(MergePart.result, MergePart.memory)
)


def mark_joined(work: Work, job_id: str, number: int) -> list[str | None]:
    """Notes that a merge is joined, after which only its memory is needed; returns the other blobs."""
    rows = of_round(work, job_id, number)
    results: list[str | None] = [row.result for row in rows]
    for row in rows:
        row.result = Digest("")
    return results


def names_blob(reader: RowReader, digest: str) -> bool:
    """Returns whether a part, or anything else that is kept, names the blob."""
    part = exists().where(or_(MergePart.result == digest, MergePart.memory == digest))
    others = (exists().where(JobBlob.digest == digest), exists().where(Task.payload == digest))
    rounds = (Round.updated, Round.published_update, Round.optimizer_state, Round.parameters)
    return bool(reader.session.scalar(select(or_(part, *others, *(exists().where(one == digest) for one in rounds)))))


_LOCKS: Final = table("pg_locks", *map(column, ("locktype", "granted", "database", "classid", "objid")))
_DATABASES: Final = table("pg_database", column("oid"), column("datname"))


def is_not_locked(reader: RowReader, name: ColumnElement[str]) -> ColumnElement[bool]:
    """Selects rows whose named lock (`hold_named_lock`) is free; on SQLite all of them."""
    if not is_shared(reader.session.get_bind()):
        return true()
    here = select(_DATABASES.c.oid).where(_DATABASES.c.datname == func.current_database()).scalar_subquery()
    mine = (_LOCKS.c.locktype == "advisory", _LOCKS.c.granted, _LOCKS.c.database == here)
    high, low = (cast(_LOCKS.c[half], BigInteger) for half in ("classid", "objid"))
    return ~exists().where(*mine, high.bitwise_lshift(literal_column("32")).bitwise_or(low) == hash_lock_name(name))
