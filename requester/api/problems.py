"""Turns errors into RFC 9457 problem details that say what to do."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ExceptionHandler

from gradmarket.market.errors import Conflict, IllegalTransition, JobRefused, MarketError, NotFound, Refused
from gradmarket.market.fields import place
from gradmarket.requester.exchange.commitments import TooEarly, TooLate

log = structlog.get_logger("gradmarket.problems")

MEDIA_TYPE = "application/problem+json"

STATUS: Sequence[tuple[type[MarketError], HTTPStatus]] = (
    (TooLate, HTTPStatus.GONE),
    (TooEarly, HTTPStatus.CONFLICT),
    (Conflict, HTTPStatus.CONFLICT),
    (IllegalTransition, HTTPStatus.CONFLICT),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Refused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (MarketError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class ProblemDetails(BaseModel):
    """RFC 9457; `errors` names the fields where there are any."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    errors: list[dict[str, str]] = []


class ProblemResponse(JSONResponse):
    """A response in which characters that UTF-8 cannot encode (half of a surrogate pair) become question marks."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


Responses = dict[int | str, dict[str, Any]]


def answers(*statuses: int) -> Responses:
    """Returns the problems of a route, for its `responses`; those that every route may return are in EVERYWHERE."""
    return {status: {"model": ProblemDetails, "description": HTTPStatus(status).phrase} for status in statuses}


EVERYWHERE = answers(414, 429, 500, 503)


def response(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    problem = ProblemDetails(title=HTTPStatus(status).phrase, status=status, detail=detail, **more)
    return ProblemResponse(problem.model_dump(exclude_defaults=True), status, headers)


async def _market(_request: Request, error: Exception) -> JSONResponse:
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    errors = [{"field": error.field, "detail": error.detail}] if isinstance(error, JobRefused) else []
    return response(status, str(error), errors=errors)


async def _validation(_request: Request, error: Exception) -> JSONResponse:
    entries = error.errors() if isinstance(error, RequestValidationError) else []
    body = error.body if isinstance(error, RequestValidationError) else None
    errors = [{"field": _field(entry["loc"], body), "detail": str(entry["msg"])} for entry in entries]
    detail = "; ".join(f"{entry['field']}: {entry['detail']}" for entry in errors)
    return response(HTTPStatus.UNPROCESSABLE_ENTITY, detail[:2000], errors=errors)


def _field(location: Sequence[Any], body: Any) -> str:
    if location[:1] == ("body",) and isinstance(body, Mapping):
        return place(location[1:], body)
    return ".".join(str(part) for part in location if part not in ("body", "query", "path", "header"))


async def _http(_request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else None
    return response(status, detail, headers)


async def _storage(_request: Request, error: Exception) -> JSONResponse:
    """Answers 503 if the database or the disk fails, since the same request may succeed later."""
    log.error("storage failed", exc_info=error)
    detail = "the service cannot reach its database or its disk just now: try again"
    return response(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "5"})


HANDLERS: Final[Mapping[type[Exception], ExceptionHandler]] = {
    **dict.fromkeys((OperationalError, InterfaceError, OSError), _storage),
    MarketError: _market,
    RequestValidationError: _validation,
    HTTPException: _http,
}


def install(app: FastAPI) -> None:
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
