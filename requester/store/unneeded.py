"""Blobs that a job is done with and that are not dropped yet. They are dropped by moves.blob_cleanup."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import delete, select, tuple_

from gradmarket.market.terms import Digest
from gradmarket.requester.store.tables import UnneededBlob
from gradmarket.requester.store.work import RowReader, Work

PAYLOAD: Final = "payload"
"""What a blob was to the job that let it go: an answer. The others are in moves.blob_cleanup."""


def add(work: Work, job_id: str, kind: str, digests: Iterable[str | None], now: float, after: int = -1) -> None:
    wanted = sorted({digest for digest in digests if digest})
    if not wanted:
        return
    own = (UnneededBlob.job_id == job_id, UnneededBlob.kind == kind, UnneededBlob.digest.in_(wanted))
    known = {row.digest: row for row in work.session.scalars(select(UnneededBlob).where(*own))}
    for digest in wanted:
        row = known.get(Digest(digest))
        if row is None:
            work.add(UnneededBlob(digest=digest, job_id=job_id, kind=kind, after=after, at=now))
        else:
            row.after, row.at = after, now


def of_job(reader: RowReader, job_id: str) -> Sequence[UnneededBlob]:
    return reader.session.scalars(select(UnneededBlob).where(UnneededBlob.job_id == job_id)).all()


def left_over(reader: RowReader, before: float) -> Sequence[str]:
    """Returns the jobs with blobs that were let go before `before`: the process that was to drop them has ended."""
    return reader.session.scalars(select(UnneededBlob.job_id).where(UnneededBlob.at < before).distinct()).all()


def forget(work: Work, job_id: str, rows: Sequence[UnneededBlob]) -> None:
    named = tuple_(UnneededBlob.digest, UnneededBlob.kind).in_([(row.digest, row.kind) for row in rows])
    gone = delete(UnneededBlob).where(UnneededBlob.job_id == job_id, named)
    work.session.execute(gone.execution_options(synchronize_session=False))
