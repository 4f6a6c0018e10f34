"""The parts of watched pages, rendered and encoded once for all viewers and sent when they change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fastapi import HTTPException
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from requester.context import Context
from requester.notifier import job_topic, rung_within

PACE_S: Final = 0.7
"""Least seconds between two renderings of one part."""
LOOK_S: Final = 5.0
"""Seconds after which a part is rendered without an event: presence and ages of workers change too."""
EVENT: Final = "part"


@dataclass(frozen=True, slots=True)
class PagePart:
    """`current`: it shows the newest event; `over`: it will not change any more."""

    text: str
    current: bool
    over: bool


Make = Callable[[], PagePart]


@dataclass(eq=False)
class _Watched:
    """A job's newest part, as it is streamed; a newer part replaces the event `changed` and sets the old one."""

    viewers: int = 0
    number: int = 0
    text: str = ""
    line: bytes = b""
    over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    def publish(self, part: PagePart | None) -> None:
        """Wakes the followers with a changed part or, with None, because none will come."""
        self.over = part is None or part.over
        if part is not None and part.text != self.text:
            self.number, self.text = self.number + 1, part.text
            self.line = ServerSentEvent(part.text, event=EVENT).encode()
        elif not self.over:
            return
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class LiveParts:
    """The parts that this process sends, by job; one is rendered while somebody follows it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watched: dict[str, _Watched] = {}

    async def follow(self, job_id: str, make: Make) -> AsyncIterator[bytes]:
        """Yields the job's part, and again when it has changed, until the job is over; `make` renders it."""
        watched, seen = self._watched.setdefault(job_id, _Watched()), 0
        watched.viewers += 1
        if watched.task is None:
            watched.task = asyncio.create_task(self._render_until_over(job_id, watched, make))
        try:
            with self._context.meters.streams.track_inprogress():
                while watched.number > seen or not watched.over:
                    changed = watched.changed
                    if watched.number > seen:
                        seen = watched.number
                        yield watched.line
                    else:
                        await changed.wait()
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                watched.task.cancel()
                self._forget_part(job_id, watched)

    async def _render_until_over(self, job_id: str, watched: _Watched, make: Make) -> None:
        """Renders until the job or the service ends, or an error comes: viewers then connect again and receive it."""
        try:
            with self._context.notifier.listen_async([job_topic(job_id)]) as notified:
                while not (watched.over or self._context.notifier.closing):
                    notified.clear()
                    current = await self._render_once(watched, make)
                    await asyncio.sleep(PACE_S)
                    await rung_within(notified, LOOK_S if current else PACE_S)
        finally:
            self._forget_part(job_id, watched)
            watched.publish(None)

    def _forget_part(self, job_id: str, watched: _Watched) -> None:
        if self._watched.get(job_id) is watched:
            del self._watched[job_id]

    @staticmethod
    async def _render_once(watched: _Watched, make: Make) -> bool:
        """Returns whether the newest event is shown. Where too much is rendered just now, followers are not woken."""
        with suppress(HTTPException):
            part = await run_in_threadpool(make)
            watched.publish(part)
            return part.current
        return False
