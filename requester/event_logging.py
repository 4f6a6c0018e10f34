"""Logs every job event once its transaction is committed, and never before."""

import structlog
from sqlalchemy import event
from sqlalchemy.orm import Session, UOWTransaction

from gradmarket.requester.logs import ids
from gradmarket.requester.store.session import Sessions
from gradmarket.requester.store.tables import JobEvent

log = structlog.get_logger("gradmarket.events")
_TOLD = "told"


def narrate(sessions: Sessions) -> None:
    """Logs the events of all transactions of these sessions."""
    event.listen(sessions, "after_flush", _collect)
    event.listen(sessions, "after_commit", _say)
    event.listen(sessions, "after_soft_rollback", _forget)


def _collect(session: Session, _flushing: UOWTransaction) -> None:
    rows = [row for row in session.new if isinstance(row, JobEvent)]
    if rows:
        session.info.setdefault(_TOLD, []).extend(rows)


def _say(session: Session) -> None:
    for row in session.info.pop(_TOLD, []):
        _line(row)


def _forget(session: Session, _previous: object) -> None:
    session.info.pop(_TOLD, None)


def _line(row: JobEvent) -> None:
    subject = row.body.get("replica") or row.body.get("task")
    log.info(row.kind, told=row.body, **ids(subject if isinstance(subject, str) else row.job_id))
