"""Receives payloads: with a poll's request, whole or in pieces, or by the object store's addresses.

Each is checked for being wanted before a byte of it is read. An interrupted upload continues where it ended.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.fields import faults_of
from gradmarket.market.terms import Address
from gradmarket.market.wire import ReplicaField, framing
from gradmarket.market.wire.framing import HEAD, MissingParts, ReceivedBytes
from gradmarket.market.wire.poll import PayloadPart, PollAnswer, PollRequest, RefusedItem
from graphdoc.encoding import Bytes
from requester.api.auth_routes import SAME_RELEASE, Here, Worker
from requester.api.problems import describe_problems
from requester.api.resumable_uploads import open_upload
from requester.api.streams import Parts, by_pieces
from requester.context import Context
from requester.exchange import outbox, payload_upload, poll, upload_grant
from requester.exchange.commitments import TooLate
from requester.exchange.outbox import Poll
from requester.exchange.payload_upload import (
    Delivery,
    build_incoming_upload,
    build_upload_name,
    inspect_and_store_payload,
)
from requester.exchange.poll import build_refused_item
from requester.exchange.upload_grant import UploadClaim, UploadGrant, UploadPace
from requester.feature import Dispatcher, dispatcher_of

log = structlog.get_logger("gradmarket.uploads")
router = APIRouter(prefix="/v1/work", tags=["work"])

MOST_HEAD: Final = 1 << 16
"""Bytes of the JSON before payloads, so that it costs no more than any request counted once. Sketches go by a poll."""
LARGE: Final = framing.PIECE
"""Bytes of a payload that may take long to come, so that its answer is taken before, in a transaction of its own."""
SLOW_S: Final = 1.0
SLOW_PART: Final = 8
"""Where a payload is paid for whenever it comes within its lease, its answer is taken first once the upload has lasted
this many seconds, or this fraction of its time: a lease ends sooner than a promise.
"""
TIDY_S: Final = 60.0
"""Seconds between looks for stale uploads."""


def parse_poll_request(body: bytes) -> PollRequest:
    """Raises RequestValidationError where the body is no poll's request."""
    try:
        return PollRequest.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in faults_of(error)]
        raise RequestValidationError(faults) from error


@dataclass(frozen=True)
class WorkerDispatchers:
    """Ask for the answers to polls, for these after a wait, and for upload grants."""

    hear: Dispatcher[outbox.Poll, PollAnswer]
    answer: Dispatcher[outbox.Poll, PollAnswer]
    want: Dispatcher[upload_grant.UploadClaim, upload_grant.UploadGrant | MarketError]


def build_worker_dispatchers(context: Context) -> WorkerDispatchers:
    dispatcher = dispatcher_of(context)
    return WorkerDispatchers(
        dispatcher(partial(poll.handle_polls, context)),
        dispatcher(partial(outbox.load_poll_answers, context)),
        dispatcher(partial(upload_grant.find_grants, context)),
    )


class FramedBody:
    """A body that begins with a poll's request and its length (market.wire), and goes on with payloads."""

    def __init__(self, request: Request) -> None:
        self.parts = Parts(request)
        self._declared = request.headers.get("content-length")
        self._read = HEAD

    async def head(self, seconds: float) -> PollRequest:
        """Raises 408 or 413, or RequestValidationError."""
        longer = f"the JSON has at most {MOST_HEAD} bytes here: poll with the rest"
        message = await self.parts.read_message(seconds, MOST_HEAD, longer, "the JSON before the payloads")
        self._read += len(message)
        return parse_poll_request(message)

    def check(self, payloads: int) -> None:
        """Raises 413 where the body is declared to be of another length than its JSON and these bytes of payloads."""
        if self._declared is not None and int(self._declared) != self._read + payloads:
            raise HTTPException(413, f"the payloads that the request names have {payloads} bytes together")


class PieceReaders:
    """The payloads, vectors and states that this process reads: a later request for one ends an earlier one, which may
    be dead.
    """

    def __init__(self) -> None:
        self._reading: dict[str, asyncio.Timeout] = {}

    @asynccontextmanager
    async def reading(self, name: str) -> AsyncIterator[None]:
        """Raises 409 in the block of an earlier request of this name: a replica's, or a state's."""
        if (earlier := self._reading.pop(name, None)) is not None:
            earlier.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(None) as mine:
                self._reading[name] = mine
                try:
                    yield
                finally:
                    if self._reading.get(name) is mine:
                        del self._reading[name]
        except TimeoutError as error:
            raise HTTPException(409, "a later request brings the same bytes: wait for its answer") from error


@dataclass(frozen=True)
class PayloadReceiver:
    """Receives the parts of one request; `files` keeps the payloads until they are paid for."""

    context: Context
    crowd: WorkerDispatchers
    readers: PieceReaders
    files: ExitStack

    async def received(self, worker: Address, poll_request: PollRequest, body: FramedBody | None) -> Poll:
        """Returns the poll with its payloads. If any of them is not wanted, none is read.

        Raises 422 where one is named twice: it would be on the disk twice.
        """
        if len({part.replica for part in poll_request.payloads}) < len(poll_request.payloads):
            raise HTTPException(422, "payloads: name each replica once")
        answers = {answer.replica: answer for answer in poll_request.answers}
        claims = [
            UploadClaim(worker, part.replica, part.fence, answers.get(part.replica)) for part in poll_request.payloads
        ]
        parts = list(zip(poll_request.payloads, await asyncio.gather(*map(self.crowd.want.ask, claims)), strict=True))
        refused = [build_refused_item(part.replica, error) for part, error in parts if isinstance(error, MarketError)]
        wants = [(part, want) for part, want in parts if isinstance(want, UploadGrant)]
        large = [want for _, want in wants if want.answer is not None and want.length > LARGE]
        risky = [want for want in large if not want.spec.answered_at_once]
        refused = refused or await self._submit_answers_first(worker, poll_request, risky)
        if refused:
            return Poll(worker, poll_request, (), tuple(refused))
        if body is not None:
            body.check(sum(framing.sent_bytes(want.length, part.start) for part, want in wants if not part.put))
        deliveries: list[Delivery] = []
        async with self._answered_if_slow(worker, poll_request, large):
            for part, want in wants:
                try:
                    delivery = await self._take_payload(part, want, body)
                except MarketError as error:
                    refused.append(build_refused_item(part.replica, error))
                else:
                    deliveries += [] if delivery is None else [delivery]
        if body is not None:
            await body.parts.end()
        return Poll(worker, poll_request, tuple(deliveries), tuple(refused))

    async def _submit_answers_first(
        self, worker: Address, poll_request: PollRequest, wants: Sequence[UploadGrant]
    ) -> list[RefusedItem]:
        """Takes the answers before these payloads, so that a lease that ends meanwhile costs no worker its upload."""
        if not wants:
            return []
        own = poll_request.model_dump(include={"determinism_class", "jobs", "min_price", "min_prices"})
        first = PollRequest(**own, answers=poll_request.answers, wait_s=0.0)
        answer = await self.crowd.hear.ask(Poll(worker, first))
        return [item for item in answer.refusals if item.replica in {want.replica for want in wants}]

    @asynccontextmanager
    async def _answered_if_slow(
        self, worker: Address, poll_request: PollRequest, wants: Sequence[UploadGrant]
    ) -> AsyncIterator[None]:
        """Takes the answers beside the block, if that takes long. One refused then is refused at the end too."""

        async def late() -> None:
            await asyncio.sleep(min(SLOW_S, *(want.upload_s / SLOW_PART for want in wants)))
            await self._submit_answers_first(worker, poll_request, wants)

        beside = asyncio.create_task(late()) if wants else None
        try:
            yield
        finally:
            if beside is not None:
                beside.cancel()

    async def _take_payload(self, part: PayloadPart, want: UploadGrant, body: FramedBody | None) -> Delivery | None:
        """Takes one payload; None if it was paid before. Raises NotFound, or Conflict for other bytes."""
        if part.put or body is None:
            return await run_in_threadpool(
                payload_upload.fetch_direct_upload, self.context, want, part.fence, self.files
            )
        if part.start is not None:
            return await receive_payload_rest(self.context, self.readers, want, part, body.parts, self.files)
        arrival = build_incoming_upload(want, self.files.enter_context(self.context.blobs.receive()))
        async with self.readers.reading(want.replica):
            await body.parts.consume_exactly(want.length, arrival.take)
        return await run_in_threadpool(inspect_and_store_payload, self.context, want, arrival)


async def receive_payload_rest(
    context: Context, readers: PieceReaders, want: UploadGrant, part: PayloadPart, parts: Parts, files: ExitStack
) -> Delivery:
    """Takes the rest of a payload from byte `part.start` on. Raises Conflict where it is not the committed payload.

    Raises 409 where it cannot go on from that byte, 410 where it is no longer wanted, and 400 for a piece of other
    bytes, or where the body breaks off; the pieces before are kept.
    """
    start, name = part.start or 0, build_upload_name(part.replica, part.fence)
    there = context.blobs.unfinished.received(want.worker, name)
    if start != framing.whole_pieces(start) or start > there:
        raise HTTPException(409, f"no piece begins at {start}: go on from {framing.whole_pieces(there)}")
    async with readers.reading(want.replica):
        incoming = await open_upload(context, files, want.worker, name, start)
        arrival, pace = build_incoming_upload(want, incoming), UploadPace(context, want, start)

        def take(digest: bytes, piece: Bytes) -> None:
            arrival.take_piece(digest, piece)
            pace.count_arrived_bytes(len(piece))

        try:
            await by_pieces(parts, framing.list_piece_sizes(want.length, start), take)
        except TooLate as error:
            raise HTTPException(410, str(error)) from error
        except Refused as error:
            raise HTTPException(400, f"{error}: {error.remedy}") from error
    return await run_in_threadpool(inspect_and_store_payload, context, want, arrival)


async def run_upload_cleanup(context: Context) -> None:
    """Deletes stale uploads from time to time."""
    while not context.notifier.closing:
        try:
            await run_in_threadpool(context.blobs.unfinished.delete_stale_uploads)
        except OSError as error:  # the disk failed: the next turn tries again
            log.error("unfinished uploads were not tidied", exc_info=error)
        await asyncio.sleep(TIDY_S)


@router.get(
    "/payloads/{replica}/{fence}",
    operation_id="get_received_bytes",
    responses=SAME_RELEASE,
    summary="How many bytes are here of an own upload that broke off",
)
def received(
    context: Here, worker: Worker, replica: ReplicaField, fence: Annotated[int, Path(ge=0, lt=2**63)]
) -> ReceivedBytes:
    """Bytes are kept under the caller's address, so no worker learns of another's."""
    there = context.blobs.unfinished.received(worker, build_upload_name(replica, fence))
    return ReceivedBytes(received=framing.whole_pieces(there))


@router.post(
    "/payloads/{replica}/{fence}/parts",
    operation_id="list_missing_parts",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 410)},
    summary="Where to put parts of a payload that have not come, directly in the object store",
)
def missing_parts(
    context: Here, worker: Worker, replica: ReplicaField, fence: Annotated[int, Path(ge=0, lt=2**63)]
) -> MissingParts:
    """Only for the worker that is asked for that payload: the first call begins an upload in the store."""
    return MissingParts(parts=tuple(payload_upload.missing_parts(context, UploadClaim(worker, replica, fence))))
