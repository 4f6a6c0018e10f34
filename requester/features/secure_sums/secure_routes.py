"""The route by which a holder goes through a round's secure aggregation (market.features.secure_sums)."""

from contextlib import ExitStack
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.features.secure_sums.sum_messages import StepTold
from requester.api.auth_routes import SAME_RELEASE, Here, Worker
from requester.api.blob_routes import UPLOAD
from requester.api.payload_uploads import PieceReaders
from requester.api.problems import describe_problems
from requester.api.streams import Parts
from requester.blobs.disk import Incoming
from requester.features.secure_sums import secure_messages
from requester.features.secure_sums.secure_messages import StepAsked
from requester.features.secure_sums.sum_rows import sum_topic
from requester.notifier import rung_within

router = APIRouter(prefix="/v1/work/aggregations", tags=["work"])

MOST_WAIT_S: Final = 60.0
LATEST: Final = 2**31 - 1
"""Greater than any attempt."""
LOOK_S: Final = 5.0
"""Seconds after which a wait reads the rows without a notification: one may get lost."""


@router.post(
    "/{replica}/{attempt}/{step}",
    operation_id="aggregate",
    responses={**SAME_RELEASE, **describe_problems(400, 404, 408, 409, 410, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Send a message of a step of a secure aggregation, and wait for the next step",
)
async def aggregate(
    context: Here,
    worker: Worker,
    request: Request,
    replica: Annotated[str, Path(max_length=128)],
    attempt: Annotated[int, Path(ge=0, le=LATEST)],
    step: Annotated[int, Path(ge=1, le=5)],
    wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 0.0,
) -> StepTold:
    """The body is the length of the step's JSON in four bytes, the JSON, and in step 3 the masked vector.

    Only a worker with a lease of the round may send; the length is checked before anything is parsed.
    """
    asked = StepAsked(worker, replica, attempt, step)
    door = await run_in_threadpool(secure_messages.find_step_grant, context, asked)
    with context.notifier.listen_async([sum_topic(door.job)]) as notified, ExitStack() as files:
        parts, longer = Parts(request), f"the JSON of this message has at most {door.most_json} bytes"
        message = await parts.read_message(context.settings.body_s, door.most_json, longer, "the message")
        incoming: Incoming | None = None
        if door.vector and door.known:  # it came before, and only the answer was lost: it is dropped
            async for _again in parts.next(door.vector):
                continue
        elif door.vector:
            incoming = files.enter_context(context.blobs.receive())
            readers: PieceReaders = request.app.state.readers
            async with readers.reading(door.asked.replica):
                await parts.consume_exactly(door.vector, incoming.write)
        await parts.end()
        reply = await run_in_threadpool(secure_messages.take_message, context, asked, message, incoming)
        files.close()
        end = context.clock() + wait_s
        while (left := end - context.clock()) > 0 and not context.notifier.closing:
            content = reply.keys or reply.shares or reply.survivors or reply.unmask or reply.summed
            if content or (reply.step and reply.attempt != attempt):  # the holder can act on it
                break
            await rung_within(notified, min(left, LOOK_S))
            notified.clear()
            reply = await run_in_threadpool(secure_messages.take_message, context, asked, message)
    return reply
