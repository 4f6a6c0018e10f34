"""Corrects the OpenAPI document: errors are problem details with their media type, on every route that returns them."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response

from gradmarket.field_docs import describe_fields
from requester.api.problems import MEDIA_TYPE, describe_problems
from requester.context import Context
from requester.feature import Feature

Json = dict[str, Any]
PROBLEM = {"$ref": "#/components/schemas/ProblemDetails"}
OF_BODIES = describe_problems(400, 408, 413)
"""Responses of every route with a body: it may not be UTF-8, come too slowly, or be too large."""
UNUSED = ("HTTPValidationError", "ValidationError")


def install_openapi(app: FastAPI) -> None:
    """Replaces FastAPI's own route, which serializes the document anew for every request."""
    described = app.openapi

    def openapi() -> Json:
        if app.openapi_schema is None:
            document = described()
            for operation in list_operations(document):
                _correct_operation(operation)
            for name in UNUSED:
                document["components"]["schemas"].pop(name, None)
            describe_fields(document["components"]["schemas"])
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != app.openapi_url]
    written = cache(lambda: json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode())

    async def write(_request: Request) -> Response:
        return Response(written(), media_type="application/json")

    app.add_route(str(app.openapi_url), write, include_in_schema=False)


def list_operations(document: Json) -> Iterator[Json]:
    for path in document["paths"].values():
        yield from path.values()


def _correct_operation(operation: Json) -> None:
    answers = operation["responses"]
    if "requestBody" in operation:
        for status, answer in OF_BODIES.items():
            response = {"description": answer["description"], "content": {"application/json": {"schema": PROBLEM}}}
            answers.setdefault(str(status), response)
    for status, answer in answers.items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if status >= "400" and name in ("ProblemDetails", *UNUSED):
            answer["content"] = {MEDIA_TYPE: {"schema": PROBLEM}}
            answer["description"] = answer["description"].replace("Validation Error", "Unprocessable Content")


class DescribedApiFeature(Feature):
    name = "described_api"

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        install_openapi(app)
