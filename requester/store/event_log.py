"""Job events, for people and for `GET /jobs/{id}/events`; written in the transaction that causes them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, bindparam, func, select

from requester.notifier import job_topic
from requester.store.tables import Job, JobEvent
from requester.store.work import RowReader, Work


def record_event(work: Work, job_id: str, kind: str, at: float, **body: Any) -> None:
    work.record(JobEvent(job_id=job_id, kind=kind, body=body, at=at))
    work.notify(job_topic(job_id))


def find_newest_event_number(reader: RowReader, job_id: str) -> int:
    """Returns the number of the job's newest event; 0 before the first."""
    return reader.session.scalar(_NEWEST, {"job": job_id}) or 0


def load_events_after(
    reader: RowReader, job_id: str, last: int, most: int
) -> Sequence[Row[int, str, dict[str, Any], float]]:
    """Returns at most so many events after the number `last`, in order: number, kind, body and time."""
    return reader.session.execute(_AFTER, {"job": job_id, "last": last, "most": most}).all()


def has_ended(reader: RowReader, job_id: str) -> bool:
    return reader.session.scalar(_ENDED, {"job": job_id}) is not None


_NEWEST: Final = select(func.max(JobEvent.id)).where(JobEvent.job_id == bindparam("job"))
_ENDED: Final = select(Job.ended_at).where(Job.id == bindparam("job"))
_AFTER: Final = (
    select(JobEvent.id, JobEvent.kind, JobEvent.body, JobEvent.at)
    .where(JobEvent.job_id == bindparam("job"), JobEvent.id > bindparam("last"))
    .order_by(JobEvent.id)
    .limit(bindparam("most"))
)
