"""Blobs that a job no longer needs and that are not dropped yet. moves.blob_cleanup drops them."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Integer, bindparam, delete, select

from gradmarket.market.terms import Digest
from requester.store.among import is_in_bound_list
from requester.store.tables import UnneededBlob
from requester.store.work import RowReader, Work

PAYLOAD: Final = "payload"
"""The kind of a blob that was an answer of the job. moves.blob_cleanup has the other kinds."""


def release_blobs(
    work: Work, job_id: str, kind: str, digests: Iterable[str | None], now: float, after: int = -1
) -> None:
    wanted = sorted({digest for digest in digests if digest})
    if not wanted:
        return
    named = {"job": job_id, "kind": kind, "digests": wanted}
    known = {row.digest: row for row in work.session.scalars(_NAMED, named)}
    for digest in wanted:
        row = known.get(Digest(digest))
        if row is None:
            work.add(UnneededBlob(digest=digest, job_id=job_id, kind=kind, after=after, at=now))
        else:
            row.after, row.at = after, now


_OF_JOB: Final = select(UnneededBlob).where(UnneededBlob.job_id == bindparam("job"))
_NAMED: Final = _OF_JOB.where(UnneededBlob.kind == bindparam("kind"), is_in_bound_list(UnneededBlob.digest, "digests"))


def of_job(reader: RowReader, job_id: str, most: int) -> Sequence[UnneededBlob]:
    """Returns at most `most` of the job's."""
    return reader.session.scalars(_SOME, {"job": job_id, "most": most}).all()


_SOME: Final = _OF_JOB.order_by(UnneededBlob.digest, UnneededBlob.kind).limit(bindparam("most", type_=Integer))


def left_over(reader: RowReader, before: float) -> Sequence[str]:
    """Returns the jobs with blobs that were released before `before`: the process that was to drop them has ended."""
    return reader.session.scalars(_LEFT_OVER, {"before": before}).all()


_LEFT_OVER: Final = select(UnneededBlob.job_id).where(UnneededBlob.at < bindparam("before")).distinct()


def delete_released_rows(work: Work, rows: Sequence[UnneededBlob]) -> None:
    if rows:
        work.connection().execute(_GONE, [{"of": row.job_id, "blob": row.digest, "as": row.kind} for row in rows])


_GONE: Final = delete(UnneededBlob).where(
    UnneededBlob.job_id == bindparam("of"),
    UnneededBlob.digest == bindparam("blob"),
    UnneededBlob.kind == bindparam("as"),
)
