"""Bodies of bounded size, in bounded time, before anybody is asked who he is."""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradmarket.requester.api import problems

STREAMED = ("/v1/blobs/", "/v1/work/payloads/")


class BodyLimit:
    """At most `limit` bytes within `seconds`, but for the doors that stream: they ask first, and count themselves."""

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(STREAMED):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await self._too_large()(scope, receive, send)
            return
        body = _Body(receive, send, self._limit, self._seconds)
        await self._app(scope, body.receive, body.send)
        if body.too_large:
            await self._too_large()(scope, receive, send)
        elif body.too_slow:
            detail = f"the body did not come within {self._seconds:.0f} s"
            await problems.response(408, detail, {"Connection": "close"})(scope, receive, send)

    def _too_large(self) -> JSONResponse:
        detail = f"a body has at most {self._limit} bytes here"
        return problems.response(413, detail, {"Connection": "close"})


class _Body:
    """Counts what comes; past a limit the application hears a disconnect, and its answer gives way to ours."""

    def __init__(self, receive: Receive, send: Send, limit: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._until = asyncio.get_running_loop().time() + seconds
        self._length = 0
        self._complete = False
        self.too_slow = False

    @property
    def too_large(self) -> bool:
        return self._length > self._limit

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
        return {"type": "http.disconnect"} if self.too_large else message

    async def send(self, message: Message) -> None:
        if not (self.too_large or self.too_slow):
            await self._send(message)
