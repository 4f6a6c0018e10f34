"""`Idempotency-Key`: a repeated POST is answered as the first one was; another body under that key is a conflict."""

from collections.abc import Callable
from typing import Annotated, Any

from blake3 import blake3
from fastapi import Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gradmarket.market.errors import Conflict
from gradmarket.market.job import canonical
from gradmarket.requester.context import Context
from gradmarket.requester.store.patience import patiently
from gradmarket.requester.store.tables import Idempotency

Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Repeat a request without repeating it"),
]


@patiently
def once(
    context: Context,
    subject: str,
    key: str | None,
    request: Any,
    act: Callable[[Session], tuple[int, BaseModel, str | None]],
) -> JSONResponse:
    """Does `act` in one transaction with the memory of its answer (status, body, Location)."""
    asked = blake3(canonical(request)).digest()
    with context.begin() as session:
        known = session.get(Idempotency, (subject, key)) if key else None
        if known is not None:
            if known.request != asked:
                raise Conflict("this Idempotency-Key came with another request")
            return _answer(known.status, known.body, known.location)
        status, view, location = act(session)
        body = view.model_dump(mode="json")
        if key:
            now = context.clock()
            session.add(
                Idempotency(
                    subject=subject, key=key, request=asked, status=status, body=body, location=location, at=now
                )
            )
    return _answer(status, body, location)


def _answer(status: int, body: Any, location: str | None) -> JSONResponse:
    return JSONResponse(body, status, {"Location": location} if location else None)
