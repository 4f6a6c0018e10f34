"""Fast routes: FastAPI describes the most frequent ones, and they are called with the request alone.

FastAPI looks through its routers, solves a route's dependencies and validates its result anew for each request, which
takes longer than these routes themselves. Here a route is found by its path, a worker's token is looked up, a body is
parsed once by its model, and an answer is serialized by its own.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from requester.api import problems
from requester.api.auth_routes import Callers, limit_wallet, require_same_worker, require_worker, token_needed
from requester.api.callers import parse_bearer_token
from requester.api.payload_uploads import parse_poll_request
from requester.context import Context
from requester.feature import Feature

JSON = "application/json"
OPEN: Final = ("/v1/health",)
"""Paths whose endpoints take nothing, open to all."""
OF_WORKERS: Final = ("/v1/work/poll", "/v1/work/answers")
"""Paths whose endpoints take `(request, worker)` and, where they take JSON, the poll's request."""
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def _build_handler(route: APIRoute) -> Handler:
    endpoint, takes_json = route.endpoint, route.body_field is not None

    async def handle(request: Request) -> Response:
        if route.path in OPEN:
            return _build_json_response(await endpoint())
        # the worker whose token the request has, like the dependency `Worker`, for routes without dependencies
        token, context = parse_bearer_token(request.scope), request.app.state.context
        callers: Callers = request.app.state.callers
        identity = None if token is None else await callers.identify(context, token)
        if identity is None:
            raise token_needed(sent=token is not None)
        await limit_wallet(request, context, identity.subject)
        worker = await require_same_worker(await require_worker(identity), request)
        bodies = (parse_poll_request(await request.body()),) if takes_json else ()
        return _build_json_response(await endpoint(request, worker, *bodies))

    return handle


class FastRouters:
    """Calls those of the routes that are in OPEN or OF_WORKERS; FastAPI gets all other requests."""

    def __init__(
        self, app: ASGIApp, routes: Iterable[BaseRoute], handlers: Mapping[type[Exception], ExceptionHandler]
    ) -> None:
        self._app = app
        self._doors = {
            (method, route.path): (route, _build_handler(route))
            for route in routes
            if isinstance(route, APIRoute) and route.path in (*OPEN, *OF_WORKERS)
            for method in route.methods or ()
        }
        self._answered = ExceptionMiddleware(_call_handler, dict(handlers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._doors.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if door is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["handler"] = door
        await self._answered(scope, receive, send)


async def _call_handler(scope: Scope, receive: Receive, send: Send) -> None:
    response: Response = await scope["handler"](Request(scope, receive))
    await response(scope, receive, send)


def _build_json_response(answer: BaseModel) -> Response:
    return Response(answer.__pydantic_serializer__.to_json(answer), media_type=JSON)


class FastRoutesFeature(Feature):
    name = "fast_routes"

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        routes = [route for router in app.state.routers for route in router.routes]
        app.add_middleware(FastRouters, routes=routes, handlers=problems.HANDLERS)
