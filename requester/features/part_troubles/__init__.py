"""Tracks the failing parts of this process: database, disk or store of blobs, broker, chain. Logs one line when a part
fails or recovers.

All failures meanwhile are the same trouble: a stopped database fails every stage, every sweep and every request.
"""

import errno
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from structlog.typing import EventDict, Processor, WrappedLogger

from requester.context import Context
from requester.feature import Feature
from requester.store.locks import retry_on_conflict
from requester.store.progress import CHAIN
from requester.store.tables import LeaderLease

DATABASE: Final = "database"
BLOBS: Final = "blobs"
BROKER: Final = "broker"
STORAGE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
SQLITE_OUT: Final = frozenset({5, 8, 10, 11, 13, 14, 26})
"""busy, read-only, I/O error, corrupt, full, cannot open, not a database (sqlite.org/rescode.html)."""
POSTGRES_OUT: Final = frozenset({"08", "53", "57", "58"})
"""Classes: connection, resources (a full disk), operator's intervention, system (PostgreSQL's appendix A)."""
PROBED_S: Final = 1.0
LONGEST: Final = 300


class PartTroubles:
    """The parts that fail now, by the time at which they began to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._probed = 0.0
        self._lock = threading.Lock()

    def begins(self, part: str) -> bool:
        """Notes that the part fails; returns whether that is new."""
        with self._lock:
            new = part not in self._since
            self._since.setdefault(part, self._clock())
            return new

    def over(self, part: str) -> float | None:
        """Notes that the part works; returns the seconds for which it failed, or None if it did not."""
        with self._lock:
            since = self._since.pop(part, None)
        return None if since is None else self._clock() - since

    def to_probe(self) -> tuple[str, ...]:
        """Returns the parts to try out, at most once in PROBED_S seconds."""
        with self._lock:
            due = bool(self._since) and self._clock() - self._probed >= PROBED_S
            if due:
                self._probed = self._clock()
            return tuple(self._since) if due else ()


TROUBLES: Final = PartTroubles()
"""The troubles of this process."""
log = structlog.get_logger("gradmarket.parts")


def part_of(error: object) -> str | None:
    """Returns the part whose failure the error is."""
    if isinstance(error, OperationalError | InterfaceError):
        # the driver's code is of the database's state; SQLite has the same class for a statement that is wrong
        code = getattr(error.orig, "sqlite_errorcode", None)
        state = getattr(error.orig, "sqlstate", None) or "08"
        is_out = state[:2] in POSTGRES_OUT if code is None else code & 0xFF in SQLITE_OUT
        if is_out:
            return DATABASE
    return BLOBS if isinstance(error, OSError) and error.errno in STORAGE else None


def drop_repeated_trouble(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """A structlog processor: writes the first line alone of a part that fails, and without a traceback."""
    error = _find_exception(line.get("exc_info"))
    part = part_of(error) or line.get("part")
    if part is None:
        return line
    if not TROUBLES.begins(part):
        raise structlog.DropEvent
    fields = {name: value for name, value in line.items() if name != "exc_info"}
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    words = line.get("error") or f"{type(error).__name__}: {text}"[:LONGEST]
    return {**fields, "part": part, "error": words, "next": "one line when it is back"}


LIBRARIES: Final = {"celery.worker.consumer.consumer": BROKER}
"""Loggers whose warnings and errors belong to one part."""


class ToldOnce(logging.Filter):
    """The same for lines that libraries write."""

    def filter(self, record: logging.LogRecord) -> bool:
        part = part_of(_find_exception(record.exc_info)) or LIBRARIES.get(record.name)
        if part is None or record.levelno < logging.WARNING:
            return True
        record.exc_info = None
        return TROUBLES.begins(part)


def probe_failed_parts(parts: Mapping[str, Callable[[], str]]) -> None:
    """Tries the parts that failed, if `parts` has them; its functions return the fault."""
    for part in TROUBLES.to_probe():
        if part in parts and not parts[part]():
            note_recovery(part)


def note_recovery(part: str) -> None:
    """Logs that a failed part works again, and for how long it failed."""
    if (seconds := TROUBLES.over(part)) is not None:
        log.warning("it is back", of=part, after_s=round(seconds, 1))


def _find_exception(exc_info: object) -> object:
    """Returns the exception that a line is about; structlog's `True` means the one that is being handled."""
    if exc_info is True:
        return sys.exc_info()[1]
    return exc_info[1] if isinstance(exc_info, tuple) else exc_info


# A part that reads well may be read-only, or full: it is tested by using it.

TRIED: Final = "ready"


def probe_database(context: Context) -> str:
    """Writes a row, since a read-only database is of no use; returns the error, or an empty text."""
    try:
        _write_row(context)
    except SQLAlchemyError as error:
        return f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"
    return ""


@retry_on_conflict
def _write_row(context: Context) -> None:
    with context.begin() as work:
        row = work.get(LeaderLease, TRIED)
        if row is None:
            work.add(LeaderLease(name=TRIED, holder="", until=context.clock()))
        else:
            row.until = context.clock()


def probe_blobs(context: Context) -> str:
    """Writes a blob; returns the error, or an empty text."""
    try:
        context.blobs.put(TRIED.encode())
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return ""


class PartTroublesFeature(Feature):
    name = "part_troubles"
    log_processors: ClassVar[tuple[Processor, ...]] = (drop_repeated_trouble,)
    log_filters: ClassVar[tuple[logging.Filter, ...]] = (ToldOnce(),)

    def look_after(self, context: Context) -> None:
        parts: dict[str, Callable[[], str]] = {
            DATABASE: lambda: probe_database(context),
            BLOBS: lambda: probe_blobs(context),
            CHAIN: lambda: context.chain_worker.trouble,
        }
        probe_failed_parts(parts)
