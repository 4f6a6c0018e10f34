"""Limits of bodies: their size and the time they take, and no body of a write without a token is parsed."""

import asyncio

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from requester.api import problems
from requester.context import Context
from requester.feature import Feature
from requester.features.body_limits.token_first import SHORT, STREAMED, TokenFirst

QUERY = 2048
"""Bytes of a query string, at most: parsing thousands of names costs more than the rest of a request."""
MOST_VALUES = 50_000
"""Values of a body of JSON, about: a manifest of 1 MiB has 40,000, and each that is wrong takes a kilobyte."""


class BodyLimit:
    """Allows bodies of at most `limit` bytes within `seconds`, except on routes that stream.

    Those authenticate first, and count the bytes themselves.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and len(scope["query_string"]) > QUERY:
            await problems.build_problem_response(414, f"a query has at most {QUERY} bytes")(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"].startswith(STREAMED):
            await self._app(scope, receive, send)
            return
        limit = min(self._limit, SHORT.get(scope["path"], self._limit))
        # the HTTP parser has validated it
        declared = int(next((value for name, value in scope["headers"] if name == b"content-length"), 0))
        body = _Body(receive, send, declared, limit, self._seconds)
        if not body.too_large:
            try:
                await self._app(scope, body.receive, body.send)
            except ClientDisconnect:
                if not (body.too_large or body.too_slow):
                    raise
        if body.too_large:  # the rest of it is dropped, so that a client that sends on can read the answer
            most = f"{MOST_VALUES} values" if body.values > MOST_VALUES else f"{limit} bytes here"
            await problems.build_problem_response(413, f"a body has at most {most}")(scope, receive, send)
        elif body.too_slow:
            detail = f"the body did not come within {self._seconds:.0f} s"
            await problems.build_problem_response(408, detail, {"Connection": "close"})(scope, receive, send)


class _Body:
    """Counts a body's bytes; past a limit the application sees a disconnect, and its answer is replaced by ours."""

    def __init__(self, receive: Receive, send: Send, declared: int, limit: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._until = asyncio.get_running_loop().time() + seconds
        self._length = 0
        self.values = 0
        self._complete = False
        self.too_slow = False
        self.too_large = declared > limit

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            self.too_slow = True
            return {"type": "http.disconnect"}
        part = message.get("body", b"")
        self._length += len(part)
        self.values += part.count(b",")
        self._complete = not message.get("more_body", False)
        self.too_large = self._length > self._limit or self.values > MOST_VALUES
        return {"type": "http.disconnect"} if self.too_large else message

    async def send(self, message: Message) -> None:
        if not (self.too_large or self.too_slow):
            await self._send(message)


class BodyLimitsFeature(Feature):
    name = "body_limits"

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(TokenFirst, context=context, callers=app.state.callers)

    def limit_requests(self, app: FastAPI, context: Context) -> None:
        settings = context.settings
        app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)
