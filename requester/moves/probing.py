"""Tries the service's parts out by using them: what is read alone may be read-only, or full."""

from sqlalchemy.exc import SQLAlchemyError

from gradmarket.requester import part_troubles
from gradmarket.requester.context import Context
from gradmarket.requester.store.retries import patiently
from gradmarket.requester.store.tables import LeaderLease

TRIED = "ready"


def database(context: Context) -> str:
    """Writes a row, since a read-only database is of no use; returns what is wrong, or an empty text."""
    try:
        _write(context)
    except SQLAlchemyError as error:
        return f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"
    return ""


def blobs(context: Context) -> str:
    """Writes a blob; returns what is wrong, or an empty text."""
    try:
        context.blobs.put(TRIED.encode())
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return ""


def look_at_troubles(context: Context) -> None:
    """Says once of each part that failed in this process that it works again."""
    parts = {part_troubles.DATABASE: lambda: database(context), part_troubles.BLOBS: lambda: blobs(context)}
    part_troubles.probe(parts)


@patiently
def _write(context: Context) -> None:
    with context.begin() as work:
        row = work.get(LeaderLease, TRIED)
        if row is None:
            work.add(LeaderLease(name=TRIED, holder="", until=context.clock()))
        else:
            row.until = context.clock()
