"""Logs job events, once their transaction is committed and never before (context.begun)."""

from collections.abc import Iterable

import structlog

from requester.logs import parse_row_ids
from requester.store.tables import Base, JobEvent

log = structlog.get_logger("gradmarket.events")


def log_events(recorded: Iterable[Base]) -> None:
    """Logs the events among the rows that a transaction recorded."""
    for row in recorded:
        if isinstance(row, JobEvent):
            subject = row.body.get("replica") or row.body.get("task")
            log.info(row.kind, told=row.body, **parse_row_ids(subject if isinstance(subject, str) else row.job_id))
