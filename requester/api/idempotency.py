"""`Idempotency-Key`: a repeated POST gets the first one's answer; another request under the same key is a conflict."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from blake3 import blake3
from fastapi import Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from gradmarket.market.errors import Conflict
from graphdoc.encoding import canonical
from requester.context import Context
from requester.store.locks import retry_on_conflict
from requester.store.tables import Idempotency
from requester.store.work import Work

Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Repeat a request without repeating it"),
]


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """`again`: this is the answer to an earlier request, and nothing was done now."""

    status: int
    body: dict[str, Any]
    location: str | None
    again: bool


def answer_once(
    context: Context,
    subject: str,
    key: str | None,
    request: Any,
    act: Callable[[Work], tuple[int, BaseModel, str | None]],
) -> JSONResponse:
    """Returns the answer of `done` as a response."""
    return _build_response(done(context, subject, key, request, act))


def digest_body(body: Any) -> str:
    """Returns the hex digest of a raw body, which may have texts and numbers that no job may have."""
    return blake3(json.dumps(body, sort_keys=True).encode()).hexdigest()


def find_answer(context: Context, subject: str, key: str | None, request: Any) -> JSONResponse | None:
    """Returns the stored answer to an earlier request with this key, before anything is checked; None without one."""
    if key is None:
        return None
    with context.reading() as reader:
        known = reader.get(Idempotency, (subject, key))
        answer = None if known is None else _read_answer(known, blake3(canonical(request)).digest())
    return None if answer is None else _build_response(answer)


def _read_answer(known: Idempotency, digest: bytes) -> StoredAnswer:
    if known.request != digest:
        raise Conflict("this Idempotency-Key came with another request")
    return StoredAnswer(known.status, known.body, known.location, again=True)


def _build_response(answer: StoredAnswer) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, {"Location": answer.location} if answer.location else None)


@retry_on_conflict
def done(
    context: Context,
    subject: str,
    key: str | None,
    request: Any,
    act: Callable[[Work], tuple[int, BaseModel, str | None]],
) -> StoredAnswer:
    """Runs `act` and stores its answer (status, body, Location) in one transaction.

    Returns the stored answer instead if the key came before; raises Conflict if it came with another request.
    """
    digest = blake3(canonical(request)).digest()
    with context.begin() as work:
        known = work.get(Idempotency, (subject, key)) if key else None
        if known is not None:
            return _read_answer(known, digest)
        status, view, location = act(work)
        body = view.model_dump(mode="json")
        if key:
            now = context.clock()
            work.add(
                Idempotency(
                    subject=subject, key=key, request=digest, status=status, body=body, location=location, at=now
                )
            )
    return StoredAnswer(status, body, location, again=False)
