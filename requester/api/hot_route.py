"""Routes that every task passes: FastAPI describes them, and Starlette calls them with the request alone.

FastAPI solves a route's dependencies and validates what it returns anew for each request, which takes longer than
these routes themselves. A worker's token is looked up, a body is parsed once by its model, and an answer is written by
its own.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from gradmarket.market.wire import PollRequest
from gradmarket.requester.api.auth_routes import worker_of

JSON = "application/json"


class HotRoute(APIRoute):
    """Of an endpoint that takes `(request, worker)` and, where its path takes JSON, the poll's request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint, takes_json = self.endpoint, self.body_field is not None

        async def handle(request: Request) -> Response:
            worker = await worker_of(request)
            bodies = (parsed(await request.body()),) if takes_json else ()
            answer: BaseModel = await endpoint(request, worker, *bodies)
            return Response(answer.__pydantic_serializer__.to_json(answer), media_type=JSON)

        return handle


def parsed(body: bytes) -> PollRequest:
    """Raises RequestValidationError where the body is no poll's request."""
    try:
        return PollRequest.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_context=False)]
        raise RequestValidationError(faults) from error
