"""Payloads that come in pieces: an interrupted upload continues where it ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, HTTPException, Path
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import Conflict, Refused
from gradmarket.market.terms import Address
from gradmarket.market.wire import framing
from gradmarket.market.wire.base import ReplicaField
from gradmarket.market.wire.framing import MissingParts, ReceivedBytes
from gradmarket.market.wire.poll import PayloadPart
from graphdoc.encoding import Bytes
from requester.api.auth_routes import SAME_RELEASE, Worker
from requester.api.problems import describe_problems
from requester.api.state import Here
from requester.api.streams import Parts, by_pieces
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.exchange import direct_upload
from requester.exchange.commitments import TooLate
from requester.exchange.payload_upload import Delivery, build_incoming_upload, inspect_and_store_payload
from requester.exchange.upload_grant import UploadClaim, UploadGrant, UploadPace

log = structlog.get_logger("gradmarket.uploads")
router = APIRouter(prefix="/v1/work", tags=["work"])

TRIES: Final = 20
AGAIN_S: Final = 0.05
"""Seconds between looks whether an earlier request has ended."""
TIDY_S: Final = 60.0
"""Seconds between looks for stale uploads."""


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
    there = context.blobs.unfinished.received(worker, _build_upload_name(replica, fence))
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
    return MissingParts(parts=tuple(direct_upload.missing_parts(context, UploadClaim(worker, replica, fence))))


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


async def receive_payload_rest(
    context: Context, readers: PieceReaders, want: UploadGrant, part: PayloadPart, parts: Parts, files: ExitStack
) -> Delivery:
    """Takes the rest of a payload from byte `part.start` on. Raises Conflict where it is not the committed payload.

    Raises 409 where it cannot go on from that byte, 410 where it is no longer wanted, and 400 for a piece of other
    bytes, or where the body breaks off; the pieces before are kept.
    """
    start, name = part.start or 0, _build_upload_name(part.replica, part.fence)
    there = context.blobs.unfinished.received(want.worker, name)
    if start != framing.whole_pieces(start) or start > there:
        raise HTTPException(409, f"no piece begins at {start}: go on from {framing.whole_pieces(there)}")
    async with readers.reading(want.replica):
        incoming = await _open_upload(context, files, want.worker, name, start)
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


async def _open_upload(context: Context, files: ExitStack, owner: Address, name: str, start: int) -> Incoming:
    """Waits a moment for an earlier request that was ended; raises 409 while another process, or its end, goes on."""
    tries = 0
    while True:
        try:
            return files.enter_context(context.blobs.continued(owner, name, start))
        except Conflict as error:
            tries += 1
            if tries > TRIES:
                raise HTTPException(409, str(error)) from error
        await asyncio.sleep(AGAIN_S)


async def run_upload_cleanup(context: Context) -> None:
    """Deletes stale uploads from time to time."""
    while not context.notifier.closing:
        try:
            await run_in_threadpool(context.blobs.unfinished.delete_stale_uploads)
        except OSError as error:  # the disk failed: the next turn tries again
            log.error("unfinished uploads were not tidied", exc_info=error)
        await asyncio.sleep(TIDY_S)


def _build_upload_name(replica: str, fence: int) -> str:
    return f"{replica} {fence}"
