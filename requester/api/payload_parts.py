"""Receives the payloads that follow a poll's request, each checked for being wanted before a byte is read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Address
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import HEAD
from gradmarket.market.wire.poll import PayloadPart, PollRequest, RefusedItem
from requester.api import payload_pieces
from requester.api.batching import WorkerBatchers
from requester.api.hot_route import parse_poll_request
from requester.api.payload_pieces import PieceReaders
from requester.api.streams import Parts, consume_stream
from requester.context import Context
from requester.exchange import direct_upload
from requester.exchange.outbox import Poll
from requester.exchange.payload_upload import Delivery, build_incoming_upload, inspect_and_store_payload
from requester.exchange.poll import build_refused_item
from requester.exchange.upload_grant import UploadClaim, UploadGrant

MOST_HEAD: Final = 1 << 16
"""Bytes of the JSON before payloads, so that it costs no more than any request counted once. Sketches go by a poll."""
LARGE: Final = framing.PIECE
"""Bytes of a payload that may take long to come, so that its answer is taken before, in a transaction of its own."""
SLOW_S: Final = 1.0
SLOW_PART: Final = 8
"""Where a payload is paid for whenever it comes within its lease, its answer is taken first once the upload has lasted
this many seconds, or this fraction of its time: a lease ends sooner than a promise.
"""


class FramedBody:
    """A body that begins with a poll's request and its length (market.wire), and goes on with payloads."""

    def __init__(self, request: Request) -> None:
        self.parts = Parts(request)
        self._declared = request.headers.get("content-length")
        self._read = HEAD

    async def head(self, seconds: float) -> PollRequest:
        """Raises 408 or 413, or RequestValidationError."""
        try:
            async with asyncio.timeout(seconds):
                length = int.from_bytes(await self.parts.read_exactly(HEAD), "big")
                if length > MOST_HEAD:
                    raise HTTPException(413, f"the JSON has at most {MOST_HEAD} bytes here: poll with the rest")
                self._read += length
                return parse_poll_request(bytes(await self.parts.read_exactly(length)))
        except TimeoutError as error:
            late = f"the JSON before the payloads did not come within {seconds:.0f} s"
            raise HTTPException(408, late, {"Connection": "close"}) from error

    def check(self, payloads: int) -> None:
        """Raises 413 where the body is declared to be of another length than its JSON and these bytes of payloads."""
        if self._declared is not None and int(self._declared) != self._read + payloads:
            raise HTTPException(413, f"the payloads that the request names have {payloads} bytes together")


@dataclass(frozen=True)
class PayloadReceiver:
    """Receives the parts of one request; `files` keeps the payloads until they are paid for."""

    context: Context
    crowd: WorkerBatchers
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
                direct_upload.fetch_direct_upload, self.context, want, part.fence, self.files
            )
        if part.start is not None:
            return await payload_pieces.receive_payload_rest(
                self.context, self.readers, want, part, body.parts, self.files
            )
        arrival = build_incoming_upload(want, self.files.enter_context(self.context.blobs.receive()))
        async with self.readers.reading(want.replica):
            length = await consume_stream(body.parts.next(want.length), want.length, "", arrival.take)
        if length != want.length:
            raise HTTPException(400, f"{length} of {want.length} bytes arrived: send them again")
        return await run_in_threadpool(inspect_and_store_payload, self.context, want, arrival)
