"""Turns errors into RFC 9457 problem details with a remedy."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ConfigDict
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ExceptionHandler

from gradmarket.market.errors import FieldRefused, MarketError
from gradmarket.market.fields import DeferredModel, describe_fault, in_words
from requester.api.problem_kinds import ProblemKind, of_error, of_status

log = structlog.get_logger("gradmarket.problems")

MEDIA_TYPE = "application/problem+json"
LONGEST_DETAIL: Final = 2000
MOST_ERRORS: Final = 100
"""An answer repeats parts of its request: a post must not come back many times as long."""


class ProblemDetails(DeferredModel):
    """RFC 9457; `type` is one of the page /errors, relative to the service's address; `errors` names the fields."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = ""
    remedy: str = ""
    errors: list[dict[str, str]] = []


class ProblemResponse(JSONResponse):
    """A response in which characters that UTF-8 cannot encode (half of a surrogate pair) become question marks."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


Responses = dict[int | str, dict[str, Any]]


def describe_problems(*statuses: int) -> Responses:
    """Returns the problems of a route, for its `responses`; those that every route may return are in EVERYWHERE."""
    return {status: {"model": ProblemDetails, "description": HTTPStatus(status).phrase} for status in statuses}


EVERYWHERE = describe_problems(414, 429, 500, 503)


def build_problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns the problem of a status."""
    return _build_problem(of_status(status), detail, status=status, headers=headers)


def _build_problem(
    kind: ProblemKind,
    detail: str,
    remedy: str = "",
    errors: Sequence[dict[str, str]] = (),
    status: int | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Returns the problem of a kind; with the kind's own remedy where the error has none."""
    code = kind.status if status is None else status
    shortened = [{name: _shorten(text) for name, text in error.items()} for error in errors[:MOST_ERRORS]]
    facts = {"title": HTTPStatus(code).phrase, "status": code, "detail": _shorten(detail), "errors": shortened}
    problem = ProblemDetails.model_validate({"type": kind.type, "remedy": remedy or kind.remedy, **facts})
    return ProblemResponse(problem.model_dump(exclude_defaults=True), code, headers)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_DETAIL else f"{text[: LONGEST_DETAIL - 1]}…"


async def _answer_market_error(_request: Request, raised: Exception) -> JSONResponse:
    error = cast(MarketError, raised)
    errors = [{"field": error.field, "detail": error.detail}] if isinstance(error, FieldRefused) else []
    return _build_problem(of_error(error), str(error), error.remedy, errors)


NO_OBJECT: Final = ("dict_type", "model_attributes_type", "model_type")
"""pydantic's types of errors for a body that is no object; a body that did not come as JSON is a text to it."""
JSON: Final = "send it with Content-Type: application/json"


async def _answer_validation_error(request: Request, error: Exception) -> JSONResponse:
    entries = error.errors() if isinstance(error, RequestValidationError) else []
    body = error.body if isinstance(error, RequestValidationError) else None
    sent = request.headers.get("content-type", "")
    described = [_describe_entry(entry, body, sent) for entry in entries[:MOST_ERRORS]]
    many = f"{len(entries)} faults: " if len(entries) > MOST_ERRORS else ""
    detail = many + "; ".join(": ".join(filter(None, pair)) for pair in described)
    errors = [{"field": field, "detail": detail} for field, detail in described]
    return _build_problem(of_status(HTTPStatus.UNPROCESSABLE_ENTITY), detail, errors=errors)


def _describe_entry(entry: Mapping[str, Any], body: Any, sent: str) -> tuple[str, str]:
    """Returns the refused field, empty for the whole body, and the reason. sent: the body's Content-Type."""
    location = entry["loc"]
    if entry["type"] == "json_invalid":
        # FastAPI reports its place in `ctx`, and pydantic in `msg`
        place, flaw = location[-1], str(entry["msg"]).removeprefix("Invalid JSON: ")
        if isinstance(place, int):
            flaw = f"{entry['ctx']['error']} at character {place}"
        return "", f"the body is not JSON: {flaw}"
    if location == ("body",) and entry["type"] == "missing":
        return "", f"the body is empty: {JSON}"
    if location == ("body",) and entry["type"] in NO_OBJECT:
        came = f"the body came as {sent[:80] or 'nothing'}: {JSON}"
        kind = sent.partition(";")[0].strip().lower()
        return "", "the body is no JSON object" if kind == "application/json" or kind.endswith("+json") else came
    if location[:1] == ("body",) and isinstance(body, Mapping):
        return in_words(entry, location[1:], body)
    field = ".".join(str(part) for part in location if part not in ("body", "query", "path", "header"))
    return field, describe_fault(entry)


async def _answer_http_error(_request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else None
    return build_problem_response(status, detail, headers)


async def _answer_storage_error(_request: Request, error: Exception) -> JSONResponse:
    """Answers 503 if the database or the disk fails, since the same request may succeed later."""
    log.error("storage failed", exc_info=error)
    detail = "the service cannot reach its database or its disk just now: try again"
    return build_problem_response(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "5"})


HANDLERS: Final[Mapping[type[Exception], ExceptionHandler]] = {
    **dict.fromkeys((OperationalError, InterfaceError, OSError), _answer_storage_error),
    MarketError: _answer_market_error,
    RequestValidationError: _answer_validation_error,
    HTTPException: _answer_http_error,
}


def install_error_handlers(app: FastAPI) -> None:
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
