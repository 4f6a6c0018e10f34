"""Limits the size of bodies and the time they take, before a request is authenticated."""

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradmarket.requester.api import problems

QUERY = 2048
"""Bytes of a query string, at most: parsing thousands of names costs more than the rest of a request."""
STREAMED = ("/v1/blobs/", "/v1/work/payloads/")
SHORT = {"/v1/session": 1 << 14}
"""Bytes of a body that is parsed without a token, at most: enough for any message to sign in with."""


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
            await problems.response(414, f"a query has at most {QUERY} bytes")(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"].startswith(STREAMED):
            await self._app(scope, receive, send)
            return
        limit = min(self._limit, SHORT.get(scope["path"], self._limit))
        body = _Body(scope, receive, send, limit, self._seconds)
        if not body.too_large:
            await self._app(scope, body.receive, body.send)
        if body.too_large:
            detail = f"a body has at most {limit} bytes here"
            await body.refuse(problems.response(413, detail, {"Connection": "close"}))
        elif body.too_slow:
            detail = f"the body did not come within {self._seconds:.0f} s"
            await problems.response(408, detail, {"Connection": "close"})(scope, receive, send)


class _Body:
    """Counts a body's bytes; past a limit the application sees a disconnect, and its answer is replaced by ours."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int, seconds: float) -> None:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._until = asyncio.get_running_loop().time() + seconds
        self._length = 0
        self._complete = False
        self.too_slow = False
        self.too_large = declared.isdigit() and int(declared) > limit

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            self.too_slow = True
            return {"type": "http.disconnect"}
        self._length += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self.too_large = self._length > self._limit
        return {"type": "http.disconnect"} if self.too_large else message

    async def send(self, message: Message) -> None:
        if not (self.too_large or self.too_slow):
            await self._send(message)

    async def refuse(self, answer: Response) -> None:
        """Answers, and reads the rest of the body, until the deadline, before the connection is closed.

        Bytes that reach a closed connection reset it, so that the client would lose the answer (RFC 9112, 9.6).
        """
        await answer(self._scope, self._receive, self._send_open)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                while not self._complete:
                    self._complete = not (await self._receive()).get("more_body", False)
        await self._send({"type": "http.response.body"})

    async def _send_open(self, message: Message) -> None:
        await self._send({**message, "more_body": True} if message["type"] == "http.response.body" else message)
