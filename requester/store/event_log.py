"""Job events, for people and for `GET /jobs/{id}/events`; written in the transaction that causes them."""

from typing import Any

from sqlalchemy.orm import Session

from gradmarket.requester.notifier import job_topic
from gradmarket.requester.store.session import notify, record
from gradmarket.requester.store.tables import JobEvent


def tell(session: Session, job_id: str, kind: str, at: float, **body: Any) -> None:
    record(session, JobEvent(job_id=job_id, kind=kind, body=body, at=at))
    notify(session, job_topic(job_id))
