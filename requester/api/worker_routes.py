"""The worker's routes: one long poll that carries everything, with payloads or without."""

import asyncio
from contextlib import ExitStack
from typing import Final

import structlog
from fastapi import APIRouter, HTTPException, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.wire import PollAnswer, PollRequest
from gradmarket.requester.api.auth_routes import ROLE, Worker
from gradmarket.requester.api.batching import WorkerBatchers
from gradmarket.requester.api.blob_routes import UPLOAD
from gradmarket.requester.api.hot_route import HotRoute
from gradmarket.requester.api.long_poll import LongPolls, Wait
from gradmarket.requester.api.payload_parts import FramedBody, PayloadReceiver
from gradmarket.requester.api.problems import answers
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import outbox
from gradmarket.requester.notifier import worker_topic

router = APIRouter(prefix="/v1/work", tags=["work"], route_class=HotRoute)

LOOK_OUT: Final = 5
"""Sweeps between two queries for news: a lost notification delays a waiting poll so long at most."""
REASON_S: Final = 0.5
"""Seconds that a poll waits at least to be told why it has no lease: to find the reason costs more than the poll."""
NEXT_S: Final = 0.25
"""Seconds that verdict and voucher wait for the next lease at most: it is drawn as soon as they are committed."""
log = structlog.get_logger("gradmarket.work")


@router.post("/poll", responses=ROLE, summary="Say what is done, hear what is new; waits up to wait_s for news")
async def poll(request: Request, worker: Worker, said: PollRequest) -> PollAnswer:
    if any(not part.put for part in said.payloads):
        raise HTTPException(422, "payloads: their bytes come with POST /v1/work/answers")
    return await _exchange(request, worker, said, None)


@router.post(
    "/answers",
    responses={**ROLE, **answers(400, 408, 413, 422)},
    openapi_extra=UPLOAD,
    summary="A poll with payloads: the length of its JSON in four bytes, the JSON, and the payloads that it names",
)
async def bring(request: Request, worker: Worker) -> PollAnswer:
    body = FramedBody(request)
    said = await body.head(request.app.state.context.settings.body_s)
    return await _exchange(request, worker, said, body)


async def _exchange(request: Request, worker: Worker, said: PollRequest, body: FramedBody | None) -> PollAnswer:
    context: Context = request.app.state.context
    crowd: WorkerBatchers = request.app.state.crowd
    polls: LongPolls = request.app.state.parked
    with context.meters.polls.track_inprogress(), ExitStack() as files:
        polled = outbox.Poll(worker, said)
        if said.payloads or body is not None:
            polled = await PayloadReceiver(context, crowd, files).received(worker, said, body)
        async with polls.waiting(worker, request) as wait:
            answer = await crowd.hear.ask(polled)
            files.close()
            if outbox.any_in(answer):
                return await _with_lease(crowd, wait, polled, answer)
            return await _news(context, crowd, wait, outbox.Poll(worker, said), answer)


async def _with_lease(crowd: WorkerBatchers, wait: Wait, polled: outbox.Poll, answer: PollAnswer) -> PollAnswer:
    """Waits a moment for the lease that follows a payment, so that one request is enough for a task."""
    if answer.leases or not polled.deliveries or not polled.said.capacity or not await wait.news(NEXT_S):
        return answer
    again = await crowd.answer.ask(outbox.Poll(polled.worker, polled.said))
    return again.model_copy(update={"refusals": answer.refusals})


async def _news(
    context: Context, crowd: WorkerBatchers, wait: Wait, polled: outbox.Poll, answer: PollAnswer
) -> PollAnswer:
    """Waits for news, as long as the worker would; then says why there is no lease."""
    end = context.clock() + polled.said.wait_s
    while not (outbox.any_in(answer) or context.notifier.closing):
        left = end - context.clock()
        if left <= 0 and polled.said.wait_s < REASON_S:
            break
        if left <= 0 or wait.ended:
            return await run_in_threadpool(outbox.last_answer, context, polled)
        notified = await wait.news(left)
        if wait.gone or context.notifier.closing:  # may be thousands at a time, so do not query for them
            break
        if notified:
            answer = await crowd.answer.ask(polled)
    return answer


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
