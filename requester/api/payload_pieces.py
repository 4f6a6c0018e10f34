"""Payloads that come in pieces: an upload that broke off goes on where it ended."""

import asyncio
from contextlib import ExitStack
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Path
from starlette.concurrency import run_in_threadpool

from gradmarket.market import framing
from gradmarket.market.errors import Conflict, Refused
from gradmarket.market.gradient.arrays import Bytes
from gradmarket.market.wire import PayloadPart
from gradmarket.market.wire_fields import ReplicaField
from gradmarket.market.wire_uploads import MissingParts, PartAddress, ReceivedBytes
from gradmarket.requester.api.auth_routes import ROLE, Worker
from gradmarket.requester.api.problems import answers
from gradmarket.requester.api.state import Here
from gradmarket.requester.api.streams import Parts, by_pieces
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import direct_upload
from gradmarket.requester.exchange.payload_upload import Delivery, arriving, look
from gradmarket.requester.exchange.upload_grant import UploadClaim, UploadGrant
from gradmarket.requester.exchange.upload_pace import UploadPace

router = APIRouter(prefix="/v1/work", tags=["work"])

TIDY_S: Final = 60.0
"""Seconds between looks for uploads that nobody continues any more."""


@router.get(
    "/payloads/{replica}/{fence}",
    operation_id="get_received_bytes",
    responses=ROLE,
    summary="How many bytes are here of an own upload that broke off",
)
def received(
    context: Here, worker: Worker, replica: ReplicaField, fence: Annotated[int, Path(ge=0, lt=2**63)]
) -> ReceivedBytes:
    """The caller's address is in the name under which bytes are kept, so nobody learns of another's."""
    there = context.blobs.unfinished.received(worker, _name(replica, fence))
    return ReceivedBytes(received=framing.whole_pieces(there))


@router.post(
    "/payloads/{replica}/{fence}/doors",
    responses={**ROLE, **answers(404, 409, 410)},
    summary="Where to put parts of a payload that have not come, directly in the object store",
)
def doors(
    context: Here, worker: Worker, replica: ReplicaField, fence: Annotated[int, Path(ge=0, lt=2**63)]
) -> MissingParts:
    """Only for who is asked for that payload: the first call begins an upload in the store."""
    missing = direct_upload.part_doors(context, UploadClaim(worker, replica, fence))
    return MissingParts(
        parts=tuple(PartAddress(start=part.start, length=part.length, address=part.address) for part in missing)
    )


async def bring(context: Context, want: UploadGrant, part: PayloadPart, parts: Parts, files: ExitStack) -> Delivery:
    """Takes the rest of a payload from byte `part.start` on. Raises Conflict where that is not the committed payload.

    Raises 409 where it cannot go on from that byte, and 400 for a piece of other bytes, or where the body breaks off;
    the pieces before are kept.
    """
    start = part.start or 0
    try:
        if start != framing.whole_pieces(start):
            raise Conflict(f"a piece begins at a multiple of {framing.PIECE}, not at {start}")
        name = _name(part.replica, part.fence)
        incoming = files.enter_context(context.blobs.continued(want.worker, name, start))
    except Conflict as error:
        raise HTTPException(409, str(error)) from error
    arrival, pace = arriving(want, incoming), UploadPace(context, want, start)

    def take(digest: bytes, piece: Bytes) -> None:
        arrival.take_piece(digest, piece)
        pace.came(len(piece))

    try:
        await by_pieces(parts, framing.sizes(want.length, start), take)
    except Refused as error:
        raise HTTPException(400, f"{error}: {error.remedy}") from error
    return await run_in_threadpool(look, context, want, arrival)


async def tidy(context: Context) -> None:
    """Deletes from time to time what nobody continues."""
    while not context.notifier.closing:
        await run_in_threadpool(context.blobs.unfinished.tidy)
        await asyncio.sleep(TIDY_S)


def _name(replica: str, fence: int) -> str:
    return f"{replica} {fence}"
