"""What happens in a job, as server-sent events; `Last-Event-ID` goes on where the connection broke."""

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sqlalchemy import select
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from gradmarket.requester.api.jobs import NO_JOB, JobPath, found
from gradmarket.requester.api.pages import MOST
from gradmarket.requester.api.state import Here
from gradmarket.requester.api.views.forms import time
from gradmarket.requester.api.views.jobs import EventView
from gradmarket.requester.bell import job_topic, rung_within
from gradmarket.requester.context import Context
from gradmarket.requester.store.tables import Event, Job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
AT_ONCE = 200


def _after(context: Context, job_id: str, last: int) -> tuple[list[EventView], bool]:
    """The next events, and whether the job can have no more."""
    with context.reading() as session:
        rows = select(Event).where(Event.job_id == job_id, Event.id > last).order_by(Event.id).limit(AT_ONCE)
        events = [EventView(id=e.id, kind=e.kind, body=e.body, at=time(e.at)) for e in session.scalars(rows)]
        over = session.get_one(Job, job_id).ended_at is not None and len(events) < AT_ONCE
        return events, over


@router.get(
    "/{job_id}/events",
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
    follow: Annotated[bool, Query(description="false: end after what there is")] = True,
) -> EventSourceResponse:
    def check() -> None:
        with context.reading() as session:
            found(session, job_id)

    await run_in_threadpool(check)
    return EventSourceResponse(_stream(context, request, job_id, last_event_id or after, follow))


async def _stream(
    context: Context, request: Request, job_id: str, last: int, follow: bool
) -> AsyncIterator[dict[str, str]]:
    with context.meters.streams.track_inprogress(), context.bell.listen_async([job_topic(job_id)]) as rung:
        while not (context.bell.closing or await request.is_disconnected()):
            rung.clear()
            told, over = await run_in_threadpool(_after, context, job_id, last)
            for event in told:
                last = event.id
                yield {"id": str(event.id), "event": event.kind, "data": json.dumps({**event.body, "at": event.at})}
            if over or (not follow and len(told) < AT_ONCE):
                return
            if len(told) < AT_ONCE:
                await rung_within(rung, context.settings.sweep_s * 5)
