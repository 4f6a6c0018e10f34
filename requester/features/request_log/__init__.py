"""Gives every request an id, logs and counts it, and answers uncaught exceptions with problem details."""

import secrets
import time
from collections.abc import Iterable
from typing import Final

import structlog
from fastapi import FastAPI
from prometheus_client import Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from requester.api import problems
from requester.context import Context
from requester.feature import Feature
from requester.meters import Meters, record_span

_Children = tuple[Histogram, Counter, Counter]
log = structlog.get_logger("gradmarket.requests")

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "PATCH"})
NO_ROUTE: Final = "none"


class RequestLog:
    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app = app
        self._meters = meters
        self._counted: dict[tuple[str, str, int], _Children] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(send)
        with bound_contextvars(request=seen.id), record_span("request") as recorded:
            try:
                await self._app(scope, receive, seen.send)
            except ClientDisconnect:
                log.info("client hung up", method=scope["method"], path=scope["path"])
            except Exception:  # answer that it was not the client's fault; the log has the rest
                log.exception("request failed", method=scope["method"], path=scope["path"])
                if not seen.status:
                    detail = f"an error of the service, not yours; its log has it under {seen.id}"
                    await problems.build_problem_response(500, detail)(scope, receive, seen.send)
                else:
                    raise
            finally:
                self._record_request(scope, seen)
                recorded.update_name(f"request {scope['method']} {getattr(scope.get('route'), 'path', NO_ROUTE)}")

    def _record_request(self, scope: Scope, seen: "_Seen") -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        seconds = time.perf_counter() - seen.began
        duration, up, down = self._get_counters(method, route, seen.status)
        duration.observe(seconds)
        up.inc(_parse_content_length(scope["headers"]))
        down.inc(seen.length)
        log.info("request", method=method, path=scope["path"], status=seen.status, seconds=round(seconds, 4))

    def _get_counters(self, method: str, route: str, status: int) -> "_Children":
        """Returns the counters of such requests, cached: prometheus_client looks each one up anew under a lock."""
        counters = self._counted.get((method, route, status))
        if counters is None:
            meters = self._meters
            duration = meters.requests.labels(method, route, str(status))
            counters = duration, meters.bytes.labels("up", route), meters.bytes.labels("down", route)
            self._counted[method, route, status] = counters
        return counters


class _Seen:
    """Records the answer while it is sent; the status stays 0 if the client disconnected before one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.id = secrets.token_hex(8)
        self.began = time.perf_counter()
        self.status = 0
        self.length = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.get("headers", [])
            self.length = _parse_content_length(headers)
            message = {**message, "headers": [*headers, (b"x-request-id", self.id.encode())]}
        await self._send(message)


def _parse_content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Returns the content length; 0 without one. Names are in small letters (ASGI)."""
    value = next((value for name, value in headers if name == b"content-length"), b"0")
    return int(value) if value.isdigit() else 0


class RequestLogFeature(Feature):
    """The last of all, so that it sees the requests that other features refuse."""

    name = "request_log"

    def limit_requests(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(RequestLog, meters=context.meters)
