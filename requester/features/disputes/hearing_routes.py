"""Routes for workers whose answers differ from others': what a referee asks them, and to answer it."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.wire.hearing_messages import HearingAnswer, HearingQuestions, HearingReceipt
from requester.api.auth_routes import SAME_RELEASE, Worker
from requester.api.blob_routes import UPLOAD
from requester.api.problems import describe_problems
from requester.api.state import Here
from requester.api.streams import consume_stream
from requester.features.disputes import hearing_exchange
from requester.features.disputes.hearings import hearing_topic
from requester.notifier import rung_within

router = APIRouter(prefix="/v1/work/hearings", tags=["work"])

MOST_WAIT_S: Final = 20.0
LOOK_S: Final = 5.0
"""Seconds after which a waiting request looks again, should a notification be lost."""
LONGER: Final = "the answer is longer than its content-length"
HEADERS: Final = "an answer has the headers hearing-replica, -side, -number, -said, -signature and content-length"


@router.get(
    "",
    operation_id="list_asked_questions",
    responses=SAME_RELEASE,
    summary="What referees of disputes ask you; waits up to wait_s for a question",
)
async def asked(
    context: Here, worker: Worker, wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 0.0
) -> HearingQuestions:
    end = context.clock() + wait_s
    with context.notifier.listen_async([hearing_topic(worker)]) as notified:
        while True:
            notified.clear()
            told = await run_in_threadpool(hearing_exchange.list_asked_questions, context, worker)
            left = end - context.clock()
            if told.questions or left <= 0 or context.notifier.closing:
                return told
            await rung_within(notified, min(left, LOOK_S))


@router.post(
    "",
    operation_id="answer_question",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Answer a referee's question: the bytes, signed in the headers",
)
async def answer(context: Here, worker: Worker, request: Request) -> HearingReceipt:
    try:
        said = HearingAnswer.model_validate(
            {name: request.headers.get(f"hearing-{name}", "") for name in HearingAnswer.model_fields}
        )
        size = int(request.headers.get("content-length", "-1"))
    except (ValidationError, ValueError):
        raise HTTPException(422, HEADERS) from None
    if not 0 <= size < 2**63:
        raise HTTPException(422, HEADERS)
    door = await run_in_threadpool(hearing_exchange.admit_answer, context, worker, said)
    body: bytearray | None = bytearray()
    if size > door.most_bytes:
        if not door.may_be_longer:
            raise HTTPException(413, f"an answer to this question has at most {door.most_bytes} bytes")
        body = None
    if body is not None:
        async with request.app.state.readers.reading(f"{worker} {said.replica}"):
            try:
                async with asyncio.timeout(max(0.0, door.until - context.clock())):
                    await consume_stream(request.stream(), size, LONGER, body.extend)
            except TimeoutError:
                raise HTTPException(404, hearing_exchange.LATE) from None
    held = None if body is None else bytes(body)
    await run_in_threadpool(hearing_exchange.store_answer, context, worker, door, said, held, size)
    return HearingReceipt(number=said.number)
