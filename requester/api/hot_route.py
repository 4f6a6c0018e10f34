"""The most frequent routes: FastAPI describes them, and they are called with the request alone.

FastAPI looks through its routers, solves a route's dependencies and validates its result anew for each request, which
takes longer than these routes themselves. Here a route is found by its path, a worker's token is looked up, a body is
parsed once by its model, and an answer is serialized by its own.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from gradmarket.market.fields import faults_of
from gradmarket.market.wire.poll import PollRequest
from requester.api.auth_routes import worker_of

JSON = "application/json"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class HotRoute(APIRoute):
    """A route whose endpoint takes `(request, worker)` and, where its path takes JSON, the poll's request."""

    def get_route_handler(self) -> Handler:
        endpoint, takes_json = self.endpoint, self.body_field is not None

        async def handle(request: Request) -> Response:
            worker = await worker_of(request)
            bodies = (parse_poll_request(await request.body()),) if takes_json else ()
            return _build_json_response(await endpoint(request, worker, *bodies))

        return handle


class OpenHotRoute(HotRoute):
    """A route whose endpoint takes nothing, open to all."""

    def get_route_handler(self) -> Handler:
        endpoint = self.endpoint

        async def handle(_request: Request) -> Response:
            return _build_json_response(await endpoint())

        return handle


class FastRouters:
    """Calls the hot routes of these routers, whose paths have no parameters; FastAPI gets all other requests."""

    def __init__(
        self, app: ASGIApp, routers: Iterable[APIRouter], handlers: Mapping[type[Exception], ExceptionHandler]
    ) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, HotRoute)]
        self._app = app
        self._doors = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
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


def parse_poll_request(body: bytes) -> PollRequest:
    """Raises RequestValidationError where the body is no poll's request."""
    try:
        return PollRequest.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in faults_of(error)]
        raise RequestValidationError(faults) from error
