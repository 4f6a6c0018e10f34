"""Event streams of jobs: new events are read and encoded once for all streams of a job, and streams are limited.

Streams that are up to date share the job's tail: after a notification the first one queries the rows for all. Streams
that are behind query for themselves; the pages of one address are read one after the other, with a pause.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import HTTPException
from sqlalchemy import Row, bindparam, func, select
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from requester.api.callers import retry_after
from requester.api.job_views import format_time
from requester.context import Context
from requester.store.tables import Job, JobEvent
from requester.store.work import RowReader

AT_ONCE: Final = 200
"""Events of one query."""
KEPT: Final = 400
"""Newest events of a job that are kept, for streams that are nearly up to date."""
PAUSE_S: Final = 0.25
"""Seconds before each page that is read for one address alone."""
BUSY_S: Final = 10.0
"""`Retry-After` in seconds for a refused stream."""


@dataclass(frozen=True, slots=True)
class TailItem:
    id: int
    line: bytes
    """The event as it is streamed."""


@dataclass
class _Tail:
    """A job's newest events: all with an id above `begins_after`, as of the query that began at `looked_at`."""

    begins_after: int = -1
    events: deque[TailItem] = field(default_factory=deque)
    looked_at: float = float("-inf")
    over: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    followers: int = 0

    @property
    def end(self) -> int:
        return self.events[-1].id if self.events else self.begins_after


class EventTails:
    """The streams of one process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tails: dict[str, _Tail] = {}
        self._sources = Counter[str]()
        self._pages: dict[str, asyncio.Lock] = {}

    @contextmanager
    def place(self, source: str | None) -> Iterator[None]:
        """Counts a stream of `source` while it is open; `source` is None for an address without limits.

        Raises HTTPException 429 if the source, 503 if the service has too many streams; both with Retry-After.
        """
        settings = self._context.settings
        if source is not None and self._sources[source] >= settings.address_streams:
            detail = f"an address follows {settings.address_streams} streams at most: end another one first"
            raise HTTPException(429, detail, retry_after(BUSY_S))
        if source is not None and self._sources.total() >= settings.streams:
            raise HTTPException(503, "too many event streams are open: try again later", retry_after(BUSY_S))
        name = source or ""
        self._sources[name] += 1
        try:
            yield
        finally:
            self._sources[name] -= 1
            if not self._sources[name]:
                del self._sources[name]
                self._pages.pop(name, None)

    @contextmanager
    def following(self, job_id: str) -> Iterator[None]:
        """Keeps the events read of the job while at least one stream follows it."""
        tail = self._tails.setdefault(job_id, _Tail())
        tail.followers += 1
        try:
            yield
        finally:
            tail.followers -= 1
            if not tail.followers:
                del self._tails[job_id]

    async def after(
        self, job_id: str, last: int, since: float | None, source: str | None
    ) -> tuple[list[TailItem], bool]:
        """Returns at most AT_ONCE events after `last`, as of `since` (the loop's time) or later.

        The flag is true once no more can come. `since` is None for a stream that follows no further: it queries the
        rows for itself.
        """
        if since is None:
            return await self._load_old_events(job_id, last, source)
        tail = self._tails[job_id]
        async with tail.turn:
            if tail.looked_at < since:
                await self._refresh_tail(job_id, tail)
        if last < tail.begins_after:
            return await self._load_old_events(job_id, last, source)
        events = [event for event in tail.events if event.id > last][:AT_ONCE]
        return events, tail.over and len(events) < AT_ONCE

    async def _refresh_tail(self, job_id: str, tail: _Tail) -> None:
        looked_at, length = asyncio.get_running_loop().time(), AT_ONCE
        if tail.begins_after < 0:
            tail.begins_after, tail.over = await run_in_threadpool(self._load_newest_position, job_id)
            length = 0
        while length == AT_ONCE:
            events, tail.over = await run_in_threadpool(self._load_events, job_id, tail.end)
            tail.events.extend(events)
            length = len(events)
        while len(tail.events) > KEPT:
            tail.begins_after = tail.events.popleft().id
        tail.looked_at = looked_at

    async def _load_old_events(self, job_id: str, last: int, source: str | None) -> tuple[list[TailItem], bool]:
        if source is None:
            return await run_in_threadpool(self._load_events, job_id, last)
        async with self._pages.setdefault(source, asyncio.Lock()):
            await asyncio.sleep(PAUSE_S)
            return await run_in_threadpool(self._load_events, job_id, last)

    def _load_newest_position(self, job_id: str) -> tuple[int, bool]:
        with self._context.reading() as reader:
            return find_newest_event_number(reader, job_id), has_ended(reader, job_id)

    def _load_events(self, job_id: str, last: int) -> tuple[list[TailItem], bool]:
        with self._context.reading() as reader:
            rows = load_events_after(reader, job_id, last, AT_ONCE)
            encoded = ((number, kind, json.dumps({**body, "at": format_time(at)})) for number, kind, body, at in rows)
            batch = [
                TailItem(number, ServerSentEvent(data, event=kind, id=str(number)).encode())
                for number, kind, data in encoded
            ]
            over = has_ended(reader, job_id) and len(batch) < AT_ONCE
        return batch, over


def find_newest_event_number(reader: RowReader, job_id: str) -> int:
    """Returns the number of the job's newest event; 0 before the first."""
    return reader.session.scalar(_NEWEST, {"job": job_id}) or 0


def load_events_after(
    reader: RowReader, job_id: str, last: int, most: int
) -> Sequence[Row[int, str, dict[str, Any], float]]:
    """Returns at most `most` events after the number `last`, in order: number, kind, body and time."""
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
