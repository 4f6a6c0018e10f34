"""Refuses writes without a valid token before the body is parsed, since JSON costs its reader more than its sender."""

from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from requester.api import problems
from requester.api.auth_routes import SEND_TOKEN, WRONG_TOKEN, Callers
from requester.api.callers import parse_bearer_token
from requester.context import Context

STREAMED = (
    *("/v1/blobs/", "/v1/work/answers", "/v1/work/states/", "/v1/work/aggregations/", "/v1/work/hearings"),
    "/v1/audits/payloads/",
    "/v1/audits/hearings",
)
SHORT = {"/v1/session": 1 << 14, "/chain": 1 << 17}
"""Bytes of a body that is parsed without a token, at most: enough to sign in with, and for a batch of calls."""
WRITING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN: Final = frozenset(SHORT)
"""Routes that take a body without a token."""


class TokenFirst:
    """Answers 401 to writes without a valid token; first drops the body, except on routes that stream."""

    def __init__(self, app: ASGIApp, context: Context, callers: Callers) -> None:
        self._app = app
        self._context = context
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] not in WRITING
            or scope["path"] in OPEN
            or await self._has_known_token(scope)
        ):
            await self._app(scope, receive, send)
            return
        try:
            if not scope["path"].startswith(STREAMED):
                async for _dropped in Request(scope, receive).stream():
                    continue
        except ClientDisconnect:
            return
        words = SEND_TOKEN if parse_bearer_token(scope) is None else WRONG_TOKEN
        await problems.build_problem_response(401, words, {"WWW-Authenticate": "Bearer"})(scope, receive, send)

    async def _has_known_token(self, scope: Scope) -> bool:
        token = parse_bearer_token(scope)
        try:
            return token is not None and await self._callers.identify(self._context, token) is not None
        except (OperationalError, InterfaceError):
            return True  # the route reports the database's error
