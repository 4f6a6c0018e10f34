"""The worker's routes: one long poll that carries everything, with payloads or without."""

import asyncio
from contextlib import ExitStack
from typing import Final

import structlog
from fastapi import APIRouter, HTTPException, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.wire.poll import PollAnswer, PollRequest
from requester.api.auth_routes import SAME_RELEASE, Worker
from requester.api.blob_routes import UPLOAD
from requester.api.long_poll import LongPolls, Wait
from requester.api.payload_uploads import FramedBody, PayloadReceiver, WorkerDispatchers
from requester.api.problems import describe_problems
from requester.context import Context
from requester.exchange import outbox
from requester.feature import look_after
from requester.notifier import worker_topic

router = APIRouter(prefix="/v1/work", tags=["work"])

LOOK_OUT: Final = 5
"""Sweeps between two queries for news: the longest delay of a waiting poll by a lost notification."""
REASON_S: Final = 0.5
"""Least seconds of a poll's wait for it to get the reason of a missing lease: finding one costs more than the poll."""
NEXT_S: Final = 0.5
"""Seconds that a verdict waits at most for the payment that it promises, and for the next lease."""
log = structlog.get_logger("gradmarket.work")


@router.post(
    "/poll",
    operation_id="poll",
    responses=SAME_RELEASE,
    summary="Report finished work and get news; waits up to wait_s for it",
)
async def poll(request: Request, worker: Worker, poll_request: PollRequest) -> PollAnswer:
    if any(not part.put for part in poll_request.payloads):
        raise HTTPException(422, "payloads: their bytes come with POST /v1/work/answers")
    return await _exchange_poll(request, worker, poll_request, None)


@router.post(
    "/answers",
    operation_id="send_answers",
    responses={**SAME_RELEASE, **describe_problems(400, 408, 409, 410, 413, 422)},
    openapi_extra=UPLOAD,
    summary="A poll with payloads: the length of its JSON in four bytes, the JSON, and the payloads that it names",
)
async def bring(request: Request, worker: Worker) -> PollAnswer:
    body = FramedBody(request)
    poll_request = await body.head(request.app.state.context.settings.body_s)
    return await _exchange_poll(request, worker, poll_request, body)


async def _exchange_poll(
    request: Request, worker: Worker, poll_request: PollRequest, body: FramedBody | None
) -> PollAnswer:
    context: Context = request.app.state.context
    crowd: WorkerDispatchers = request.app.state.crowd
    polls: LongPolls = request.app.state.parked
    with context.meters.polls.track_inprogress(), ExitStack() as files:
        polled = outbox.Poll(worker, poll_request)
        if poll_request.payloads or body is not None:
            polled = await PayloadReceiver(context, crowd, request.app.state.readers, files).received(
                worker, poll_request, body
            )
        async with polls.waiting(worker, request) as wait:
            answer = await crowd.hear.ask(polled)
            files.close()
            repeated = outbox.Poll(worker, polled.request)
            if not outbox.any_in(answer):
                answer = await _wait_for_news(context, crowd, wait, repeated, answer)
            return await _complete_answer(context, crowd, wait, repeated, answer)


async def _complete_answer(
    context: Context, crowd: WorkerDispatchers, wait: Wait, polled: outbox.Poll, answer: PollAnswer
) -> PollAnswer:
    """Waits a moment for the payment that follows a promise, and for the lease that follows a payment.

    So a worker sends no request only to hear of them. A worker that revealed asks for its next lease once everything it
    has heard of is over: it does so by the same request again, which changes nothing else.
    """
    asks, refusals, end = not polled.request.reveals, answer.refusals, context.clock() + NEXT_S
    while polled.request.capacity and outbox.only_verdicts(answer) and not (wait.gone or context.notifier.closing):
        if not asks and outbox.all_over(answer):
            answer, asks = await crowd.hear.ask(polled), True
        elif (left := end - context.clock()) > 0 and await wait.wait_for_news(left):
            answer = await crowd.answer.ask(polled)
        else:
            break
    return answer if answer.refusals == refusals else answer.model_copy(update={"refusals": refusals})


async def _wait_for_news(
    context: Context, crowd: WorkerDispatchers, wait: Wait, polled: outbox.Poll, answer: PollAnswer
) -> PollAnswer:
    """Waits for news, as long as the worker would; then adds the reason why it has no lease."""
    end = context.clock() + polled.request.wait_s
    while not (outbox.any_in(answer) or context.notifier.closing):
        left = end - context.clock()
        if left <= 0 and polled.request.wait_s < REASON_S:
            break
        if left <= 0 or wait.ended:
            return await run_in_threadpool(outbox.last_answer, context, polled)
        notified = await wait.wait_for_news(left)
        if wait.gone or context.notifier.closing:  # may be thousands at a time, so do not query for them
            break
        if notified:
            answer = await crowd.answer.ask(polled)
    return answer


async def look_out(context: Context) -> None:
    """Notifies from time to time all workers that have news, so that no waiting poll has to query by itself."""
    while not context.notifier.closing:
        await asyncio.sleep(LOOK_OUT * context.settings.sweep_s)
        await run_in_threadpool(look_after, context)
        try:
            addresses = await run_in_threadpool(outbox.list_addressed_workers, context)
        except SQLAlchemyError:
            log.exception("cannot look for news")
            continue
        context.notifier.notify([worker_topic(address) for address in addresses])
