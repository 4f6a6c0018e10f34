"""The worker's routes: one long poll that carries everything, and one upload."""

import asyncio
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, HTTPException, Path, Query, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.wire import PollAnswer, PollRequest, UploadAnswer
from gradmarket.requester.api.auth_routes import ROLE, Worker
from gradmarket.requester.api.batching import AllHere, WorkerBatchers
from gradmarket.requester.api.blob_routes import UPLOAD
from gradmarket.requester.api.pages import MOST
from gradmarket.requester.api.problems import answers
from gradmarket.requester.api.state import Here
from gradmarket.requester.api.streams import streamed
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import direct_upload, outbox, payload_upload, upload_grant
from gradmarket.requester.exchange.incoming_upload import IncomingUpload
from gradmarket.requester.notifier import worker_topic

router = APIRouter(prefix="/v1/work", tags=["work"])

LOOK_OUT: Final = 5
"""Sweeps between two queries for news: a lost notification delays a waiting poll so long at most."""
REASON_S: Final = 0.5
"""Seconds that a poll waits at least to be told why it has no lease: to find the reason costs more than the poll."""
log = structlog.get_logger("gradmarket.work")

ReplicaPath = Annotated[str, Path(pattern=r"^[0-9A-Za-z-]{1,128}$")]


@router.post("/poll", responses=ROLE, summary="Say what is done, hear what is new; waits up to wait_s for news")
async def poll(context: Here, crowd: AllHere, request: Request, worker: Worker, said: PollRequest) -> PollAnswer:
    waiting_poll, parked = outbox.Poll(worker, said), request.app.state.parked
    with context.meters.polls.track_inprogress():
        async with parked.waiting(worker, request) as wait:
            answer = await crowd.hear.ask(waiting_poll)
            end = context.clock() + said.wait_s
            while not (outbox.any_in(answer) or context.notifier.closing):
                left = end - context.clock()
                if left <= 0 and said.wait_s < REASON_S:
                    break
                if left <= 0 or wait.ended:
                    return await run_in_threadpool(outbox.last_answer, context, waiting_poll)
                notified = await wait.news(left)
                if wait.gone or context.notifier.closing:  # may be thousands at a time, so do not query for them
                    break
                if notified:
                    answer = await crowd.answer.ask(waiting_poll)
    return answer


@router.put(
    "/payloads/{replica}",
    responses={**ROLE, **answers(400, 404, 409, 410, 413)},
    openapi_extra=UPLOAD,
    summary="Upload the payload that was asked for; the answer carries the voucher",
)
async def upload(
    context: Here,
    crowd: AllHere,
    worker: Worker,
    request: Request,
    replica: ReplicaPath,
    fence: int = Query(ge=0, le=MOST),
    put: Annotated[bool, Query(description="The payload was put at the address that the poll named")] = False,
) -> UploadAnswer:
    want = upload_grant.granted(await crowd.want.ask(upload_grant.UploadClaim(worker, replica, fence)))
    if put:
        return await run_in_threadpool(direct_upload.fetch, context, want, fence)
    return await _take(context, crowd, request, want)


async def look_out(context: Context) -> None:
    """Notifies from time to time all workers that have news, so that no waiting poll has to query by itself."""
    while not context.notifier.closing:
        await asyncio.sleep(LOOK_OUT * context.settings.sweep_s)
        try:
            addresses = await run_in_threadpool(outbox.addressed, context)
        except SQLAlchemyError:
            log.exception("cannot look for news")
            continue
        context.notifier.notify([worker_topic(address) for address in addresses])


async def _take(
    context: Context, crowd: WorkerBatchers, request: Request, want: upload_grant.UploadGrant
) -> UploadAnswer:
    length = request.headers.get("content-length")
    if length is not None and int(length) != want.length:
        raise HTTPException(413, f"a payload of this job has {want.length} bytes, not {length}")
    with context.blobs.receive() as incoming:
        arrival = payload_upload.arriving(want, incoming)
        await _receive(request, arrival, want.length)
        if want.paid:
            return await run_in_threadpool(payload_upload.take, context, want, arrival)
        delivery = await run_in_threadpool(payload_upload.look, context, want, arrival)
        return upload_grant.granted(await crowd.book.ask(delivery))


async def _receive(request: Request, arrival: IncomingUpload, length: int) -> None:
    received = await streamed(request, length, f"a payload of this job has {length} bytes", arrival.take)
    if received != length:
        raise HTTPException(400, f"{received} bytes came of {length}: send them again")
