"""Checks every answer that a test gets against the OpenAPI document: its status, and the type of its body.

Each has the header that forbids a browser to guess another type.
"""

import re
from typing import Any, Final

import httpx
from fastapi import FastAPI

_DOCUMENTS: Final[dict[frozenset[tuple[str, frozenset[str]]], dict[str, Any]]] = {}
"""By the routes of an app, each a path and its methods."""


def describe_once(app: FastAPI) -> dict[str, Any]:
    """Returns the app's OpenAPI document: that of an earlier app with the same routes, for it takes long to make."""
    routes = [(getattr(route, "path", ""), frozenset(getattr(route, "methods", None) or ())) for route in app.routes]
    app.openapi_schema = _DOCUMENTS.get(frozenset(routes))
    return _DOCUMENTS.setdefault(frozenset(routes), app.openapi())


class Declared:
    """An httpx hook. Answers of no route (404, 405) are not in the document, and pass."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._operations = [
            (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path, operation["responses"])
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def __call__(self, response: httpx.Response) -> None:
        assert response.headers.get_list("x-content-type-options") == ["nosniff"]
        for method, path, name, responses in self._operations:
            if method == response.request.method and path.fullmatch(response.request.url.path):
                self._check(response, f"{method} {name}", responses)

    def _check(self, response: httpx.Response, route: str, responses: dict[str, Any]) -> None:
        told = responses.get(str(response.status_code))
        assert told is not None, f"{route} answers {response.status_code}, which it does not declare"
        if response.request.method != "HEAD":
            kind = response.headers.get("content-type", "").partition(";")[0]
            assert kind in (set(told.get("content", {})) or {""}), f"{route} answers {response.status_code} as {kind}"
