"""Uploads by digest that go on where they broke off.

A PUT with `Upload-Offset` (draft-ietf-httpbis-resumable-upload) brings the bytes from there on. Where its connection
breaks, the bytes so far stay for a while under the caller's name and the digest: no caller learns of another's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import Annotated, Final

from fastapi import Header, HTTPException, Request
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import Conflict, MarketError
from gradmarket.market.wire.framing import UPLOAD_OFFSET
from requester.api.streams import consume_stream
from requester.blobs.disk import Incoming
from requester.context import Context

TRIES: Final = 20
AGAIN_S: Final = 0.05
"""Seconds between looks whether an earlier request has ended."""

UploadOffset = Annotated[
    int | None,
    Header(
        alias=UPLOAD_OFFSET,
        ge=0,
        lt=2**63,
        description="The first byte that this request brings: where it breaks off, the bytes so far are kept for an "
        "hour, and `GET /v1/blobs/{digest}/received` has their number",
    ),
]


async def open_upload(context: Context, files: ExitStack, owner: str, name: str, start: int) -> Incoming:
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


@asynccontextmanager
async def receive_upload(
    context: Context,
    request: Request,
    owner: str,
    digest: str,
    offset: int | None,
    most: int,
    refusal: str,
    reading: AbstractAsyncContextManager[object] | None = None,
) -> AsyncIterator[Incoming]:
    """Yields the whole upload, whose bytes have the digest.

    Without an `offset` the bytes are not kept where the connection breaks. `reading` is open until the last byte came.
    Raises 413 with `refusal` for more than `most` bytes in all, 409 where fewer bytes than `offset` are stored, and
    Conflict for bytes of another digest. None of the bytes are kept that the service refuses, in the block too.
    """
    with ExitStack() as files:
        async with reading or nullcontext():
            if offset is None:
                incoming = files.enter_context(context.blobs.receive())
            else:
                incoming = await open_upload(context, files, owner, digest, offset)
            with _discarding(incoming):
                await consume_stream(request.stream(), max(0, most - incoming.length), refusal, incoming.write)
        with _discarding(incoming):
            found = await run_in_threadpool(lambda: incoming.digest)
            if found != digest:
                raise Conflict(f"the bytes are {found}, not {digest}")
            yield incoming


@contextmanager
def _discarding(incoming: Incoming) -> Iterator[None]:
    """Deletes the bytes where the service refuses them; a break or a failing disk costs none."""
    try:
        yield
    except (HTTPException, MarketError):
        incoming.discard()
        raise
