"""Gives every request an id, logs and counts it, and answers uncaught exceptions with problem details."""

import secrets
import time
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from gradmarket.requester.api import problems
from gradmarket.requester.meters import Meters

log = structlog.get_logger("gradmarket.requests")

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "PATCH"})
NO_ROUTE: Final = "none"


class RequestLog:
    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(send)
        with bound_contextvars(request=seen.id):
            try:
                await self._app(scope, receive, seen.send)
            except Exception:  # answer that it was not the client's fault; the log has the rest
                log.exception("request failed", method=scope["method"], path=scope["path"])
                if not seen.status:
                    detail = f"an error of the service, not yours; its log has it under {seen.id}"
                    await problems.response(500, detail)(scope, receive, seen.send)
                else:
                    raise
            finally:
                self._note(scope, seen)

    def _note(self, scope: Scope, seen: "_Seen") -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        seconds = time.perf_counter() - seen.began
        self._meters.requests.labels(method, route, str(seen.status)).observe(seconds)
        up = dict(scope["headers"]).get(b"content-length", b"0")
        self._meters.bytes.labels("up", route).inc(int(up) if up.isdigit() else 0)
        self._meters.bytes.labels("down", route).inc(seen.length)
        log.info("request", method=method, path=scope["path"], status=seen.status, seconds=round(seconds, 4))


class _Seen:
    """Records the answer while it is sent; the status stays 0 if there is none because the client disconnected."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.id = secrets.token_hex(8)
        self.began = time.perf_counter()
        self.status = 0
        self.length = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", []))
            self.length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
            message = {**message, "headers": [*headers, (b"x-request-id", self.id.encode())]}
        await self._send(message)
