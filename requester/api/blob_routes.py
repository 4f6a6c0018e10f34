"""Routes for blobs by their digest, whole or by range. Blobs are immutable, so any cache may keep them."""

from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.fields import DIGEST
from gradmarket.market.terms import Address, Digest
from gradmarket.market.wire.framing import ReceivedBytes
from requester.api.auth_routes import (
    ANYONE,
    ROLE,
    WORKER,
    Anyone,
    AnyoneOrNobody,
    Here,
    Identity,
    Submitter,
    token_needed,
)
from requester.api.callers import through_proxy
from requester.api.problems import Responses, describe_problems
from requester.api.resumable_uploads import UploadOffset, receive_upload
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.feature import features_of
from requester.moves import blob_cleanup
from requester.store import blob_needs, visibility
from requester.store.work import Work

router = APIRouter(prefix="/v1/blobs", tags=["blobs"])

OCTETS = "application/octet-stream"
BYTES = {"schema": {"type": "string", "format": "binary"}}
WHOLE: Responses = {200: {"description": "The bytes", "content": {OCTETS: BYTES}}}
PART: Responses = {
    206: {"description": "The bytes of the Range", "content": {OCTETS: BYTES}},
    400: {"description": "No Range of this form", "content": {"text/plain": {}}},
    416: {"description": "No such Range", "content": {"text/plain": {}}},
}
ELSEWHERE: Responses = {307: {"description": "The bytes are served from the Location, for a while and to anybody"}}
UPLOAD = {"requestBody": {"required": True, "content": {OCTETS: BYTES}}}

KEPT: Final = "the job keeps its parameters to its requester (visibility): send an API token"

DigestPath = Annotated[str, Path(pattern=DIGEST)]

Unserved = Annotated[
    bool, Query(description="Rows to measure on: no route serves them, and only jobs of the same API token name them")
]


@router.get(
    "/{digest}",
    operation_id="get_blob",
    response_class=FileResponse,
    responses={**WHOLE, **PART, **ELSEWHERE, **ROLE, **describe_problems(404)},
    summary="The bytes; Range resumes a broken download",
)
@router.head(
    "/{digest}",
    operation_id="check_blob",
    response_class=FileResponse,
    responses={**PART, **ROLE, **describe_problems(404)},
    summary="Whether the bytes are there, and how many",
)
def get(context: Here, request: Request, who: AnyoneOrNobody, digest: DigestPath) -> Response:
    _check_read_access(context, who, Digest(digest))
    if request.method == "HEAD" and context.blobs.reached_past_us:
        length = context.blobs.length(Digest(digest))
        return Response(None, 200, {"ETag": f'"{digest}"', "Content-Length": str(length)}, OCTETS)
    return build_blob_response(context, request, Digest(digest), None)


@router.get(
    "/{digest}/pieces",
    operation_id="get_blob_pieces",
    response_class=Response,
    responses={**WHOLE, **ROLE, **describe_problems(404)},
    summary="The blake3 of each MiB of a longer blob, one after the other: which Range of a download is wrong",
)
def pieces(context: Here, who: AnyoneOrNobody, digest: DigestPath) -> Response:
    """A blob of one MiB or less has no list, nor has one that an older version kept or that came back from a backup."""
    _check_read_access(context, who, Digest(digest))
    return Response(context.blobs.pieces(Digest(digest)), 200, media_type=OCTETS)


def _check_read_access(context: Context, who: Identity | None, digest: Digest) -> None:
    """Raises 401, 403 or NotFound unless the caller may read it; API tokens may read all but holders' answers and
    unserved blobs.
    """
    with context.reading() as reader:
        access = visibility.load_access(reader, digest, Address(who.subject) if who else visibility.NOBODY)
    if who is None:
        if not access.to_anybody:
            raise token_needed()
    elif not access.to_requester or (who.role == WORKER and access.answer):
        raise NotFound(f"no blob {digest}")
    elif who.role == WORKER and not access.to_worker:
        raise HTTPException(403, KEPT)


class Served(FileResponse):
    chunk_size = 1 << 20
    """Bytes read at a time; with Starlette's 64 KiB most of the time is spent switching threads."""


def build_blob_response(context: Context, request: Request, digest: Digest, name: str | None) -> Response:
    """Returns the blob as a response, or a redirect to its own address. Raises NotFound.

    With a `name` the client saves it as a file of that name. The caller has checked the right to read it. A request
    through a trusted proxy gets the file's path alone, and the proxy sends the file.
    """
    place, tag = context.blobs.where(digest), {"ETag": f'"{digest}"'}
    if isinstance(place, str):
        return RedirectResponse(place, 307, {**tag, "Cache-Control": "no-store"})
    caching = {} if name else {"Cache-Control": "private, max-age=31536000, immutable"}
    whole = Served(place, 200, {**tag, **caching}, OCTETS, filename=name)
    settings = context.settings
    if settings.proxy_blobs is None or not through_proxy(request.scope, settings.trusted_proxies):
        return whole
    inside = settings.proxy_blobs + place.relative_to(settings.data / "blobs").as_posix()
    return Response(None, 200, {**whole.headers, "X-Accel-Redirect": inside})


@router.put(
    "/{digest}",
    operation_id="put_blob",
    status_code=201,
    response_class=Response,
    responses={**ROLE, **describe_problems(409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Upload bytes under their digest",
)
async def put(
    context: Here,
    who: Submitter,
    request: Request,
    digest: DigestPath,
    unserved: Unserved = False,
    offset: UploadOffset = None,
) -> Response:
    place = {"Location": f"/v1/blobs/{digest}"}
    if unserved and offset and offset == await run_in_threadpool(_find_own_unserved, context, who, Digest(digest)):
        return Response(status_code=201, headers=place)
    limit = context.settings.max_blob_bytes
    refusal = f"a blob has at most {limit} bytes"

    def store_upload(incoming: Incoming) -> None:
        def spend(work: Work) -> None:
            for feature in features_of(work):
                feature.charge_upload(context, work, who.role, who.subject, incoming.length)

        if unserved:  # rows that only jobs of this token measure on
            blob_cleanup.record_unserved_blob(context, Digest(digest), who.subject, spend)
        else:
            blob_cleanup.record_uploaded_blobs(context, [Digest(digest)], spend)
        context.blobs.store_blob(incoming, Digest(digest))

    try:
        async with receive_upload(context, request, who.subject, digest, offset, limit, refusal) as incoming:
            await run_in_threadpool(store_upload, incoming)
    except Conflict as error:
        raise HTTPException(422, error.detail) from error
    return Response(status_code=201, headers=place)


@router.get(
    "/{digest}/received",
    operation_id="get_received_upload",
    responses=ANYONE,
    summary="How many bytes of this digest are here of an own upload that broke off",
)
def received(context: Here, who: Anyone, digest: DigestPath, unserved: Unserved = False) -> ReceivedBytes:
    """Bytes are kept under the caller's name; a PUT with this number as its `Upload-Offset` goes on.

    With `unserved` all bytes of own unserved rows that are here count: their PUT needs none again.
    """
    there = context.blobs.unfinished.received(who.subject, digest)
    if unserved and not there:
        there = _find_own_unserved(context, who, Digest(digest))
    return ReceivedBytes(received=there)


def _find_own_unserved(context: Context, who: Identity, digest: Digest) -> int:
    """Returns the bytes of the rows that the caller's token uploaded unserved; 0 where it has none of this digest."""
    with context.reading() as reader:
        own = who.role != WORKER and blob_needs.unserved_of(reader, digest, who.subject)
    try:
        return context.blobs.length(digest) if own else 0
    except NotFound:
        return 0
