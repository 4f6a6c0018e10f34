"""A job's events as a stream, for those that follow it.

`Last-Event-ID` resumes after a broken connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from requester.api.auth_routes import Here
from requester.api.job_routes import NO_JOB, JobPath, unit_of
from requester.api.paging import MOST
from requester.context import Context
from requester.feature import Feature
from requester.features.event_streams.event_tail import AT_ONCE, EventTails
from requester.notifier import job_topic, rung_within

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class FollowedJob(EventSourceResponse):
    """A stream of a job's events, which counts toward the limits on streams while it is sent."""

    def __init__(self, following: EventTails, source: str | None, stream: AsyncIterator[bytes]) -> None:
        super().__init__(stream)
        self._following, self._source = following, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._following.place(self._source):
            await super().__call__(scope, receive, send)


@router.get(
    "/{job_id}/events",
    operation_id="follow_events",
    response_class=EventSourceResponse,
    responses={200: {"description": "Until the job ends", "content": {"text/event-stream": {}}}, **NO_JOB},
    summary="Server-sent events of one job",
)
async def events(
    context: Here,
    request: Request,
    job_id: JobPath,
    last_event_id: Annotated[int | None, Header(ge=0, le=MOST)] = None,
    after: Annotated[int, Query(ge=0, le=MOST, description="Only events with a higher id")] = 0,
    follow: Annotated[bool, Query(description="false: end after the stored events")] = True,
) -> EventSourceResponse:
    def check() -> None:
        with context.reading() as reader:
            unit_of(reader, job_id)

    await run_in_threadpool(check)
    following: EventTails = request.app.state.following
    source: str | None = request.state.source
    messages = _stream_events(context, request, following, EventQuery(job_id, last_event_id or after, follow, source))
    return FollowedJob(following, source, messages)


@dataclass(frozen=True)
class EventQuery:
    """A request for the events of a job after `last`; with `follow` also for those that come later."""

    job_id: str
    last: int
    follow: bool
    source: str | None


async def _stream_events(
    context: Context, request: Request, following: EventTails, asked: EventQuery
) -> AsyncIterator[bytes]:
    last, look_s, now = asked.last, context.settings.sweep_s * 5, asyncio.get_running_loop().time
    with ExitStack() as stack:
        stack.enter_context(context.meters.streams.track_inprogress())
        stack.enter_context(following.following(asked.job_id))
        notified = stack.enter_context(context.notifier.listen_async([job_topic(asked.job_id)]))
        since = now()
        while not (context.notifier.closing or await request.is_disconnected()):
            notified.clear()
            events, over = await following.after(asked.job_id, last, since if asked.follow else None, asked.source)
            if events:
                last = events[-1].id
                yield b"".join(event.line for event in events)
            if over or (not asked.follow and len(events) < AT_ONCE):
                return
            if len(events) < AT_ONCE:
                since = now() if await rung_within(notified, look_s) else now() - look_s


class EventStreamsFeature(Feature):
    name = "event_streams"
    routers = (router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.following = EventTails(context)
