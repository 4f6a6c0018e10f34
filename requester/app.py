"""The FastAPI application over a context; whoever drives the stages is not its business."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradmarket.requester.api import auth, blobs, chain, events, health, jobs, payments, problems, work
from gradmarket.requester.context import Context

STREAMED = ("/v1/blobs/", "/v1/work/payloads/")


def create_app(context: Context, drive: Callable[[], AbstractContextManager[object]]) -> FastAPI:
    """`drive` is entered while the application serves: the stages, for the embedded form."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with drive():
            yield

    app = FastAPI(
        title="gradmarket",
        summary="A marketplace for gradients: strangers' GPUs train your model and are paid per accepted gradient.",
        lifespan=lifespan,
        responses=problems.RESPONSES,
    )
    app.state.context = context
    problems.install(app)
    for door in (auth, jobs, payments, events, work, blobs, chain, health):
        app.include_router(door.router)
    app.add_middleware(BodyLimit, limit=context.settings.max_body_bytes)
    return app


class BodyLimit:
    """Refuses bodies over `limit` bytes, but for the doors that stream and count for themselves."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(STREAMED):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refuse(scope, receive, send)
            return
        await self._watched(scope, receive, send)

    async def _watched(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts what comes; past the limit the application hears a disconnect, and its answer gives way to ours."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            return message if total <= self._limit else {"type": "http.disconnect"}

        async def unless_refused(message: Message) -> None:
            if total <= self._limit:
                await send(message)

        await self._app(scope, counted, unless_refused)
        if total > self._limit:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await problems.response(413, f"a body has at most {self._limit} bytes here")(scope, receive, send)
