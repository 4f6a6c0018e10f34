"""Tests the service's parts by using them: a part that reads well may be read-only, or full."""

from contextlib import suppress

import structlog
from sqlalchemy.exc import SQLAlchemyError

from requester import part_troubles
from requester.context import Context
from requester.store import stored_times
from requester.store.locks import retry_on_conflict
from requester.store.tables import LeaderLease

TRIED = "ready"
log = structlog.get_logger("gradmarket.clock")


def probe_database(context: Context) -> str:
    """Writes a row, since a read-only database is of no use; returns the error, or an empty text."""
    try:
        _write(context)
    except SQLAlchemyError as error:
        return f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"
    return ""


def probe_blobs(context: Context) -> str:
    """Writes a blob; returns the error, or an empty text."""
    try:
        context.blobs.put(TRIED.encode())
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return ""


def look_after(context: Context) -> None:
    """Reports once for each part that failed in this process that it works again; mends times after a wrong clock."""
    with suppress(SQLAlchemyError):
        context.after_fall(lambda: _mend_times(context))
    parts = {part_troubles.DATABASE: lambda: probe_database(context), part_troubles.BLOBS: lambda: probe_blobs(context)}
    part_troubles.probe_failed_parts(parts)


@retry_on_conflict
def _mend_times(context: Context) -> None:
    now = context.clock()
    with context.begin() as work:
        changed = stored_times.bring_back(work, now)
    if changed:
        log.warning("times that were stored ahead are brought back", rows=changed)


@retry_on_conflict
def _write(context: Context) -> None:
    with context.begin() as work:
        row = work.get(LeaderLease, TRIED)
        if row is None:
            work.add(LeaderLease(name=TRIED, holder="", until=context.clock()))
        else:
            row.until = context.clock()
