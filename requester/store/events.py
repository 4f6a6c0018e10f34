"""What happened, for people and for `GET /jobs/{id}/events`; written in the transaction that made it happen."""

from typing import Any

from sqlalchemy.orm import Session

from gradmarket.requester.bell import job_topic
from gradmarket.requester.store.session import record, ring
from gradmarket.requester.store.tables import Event


def tell(session: Session, job_id: str, kind: str, at: float, **body: Any) -> None:
    record(session, Event(job_id=job_id, kind=kind, body=body, at=at))
    ring(session, job_topic(job_id))
