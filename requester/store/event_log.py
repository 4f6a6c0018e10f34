"""Job events, for people and for `GET /jobs/{id}/events`; written in the transaction that causes them."""

from typing import Any

from requester.notifier import job_topic
from requester.store.tables import JobEvent
from requester.store.work import Work


def record_event(work: Work, job_id: str, kind: str, at: float, **body: Any) -> None:
    work.record(JobEvent(job_id=job_id, kind=kind, body=body, at=at))
    work.notify(job_topic(job_id))
