"""Renders the service's templates, and shows refusals of a page's routes on a page instead of as JSON."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from gradmarket.market.errors import NotFound
from gradmarket.network.environment import path_of
from gradmarket.pages import Templates, build_html_response
from requester.context import Context

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """Renders the refusals that a viewer can meet; every other error is answered as everywhere (api.problems)."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except NotFound as error:
                return _render_error_page(request, 404, str(error))
            except RequestValidationError:
                if request.method != "GET":
                    raise  # the page's script sent this request, and shows the problem's words
                return _render_error_page(request, 404, f"there is no page {request.url.path[:100]}")
            except HTTPException as error:
                if error.status_code not in (404, 503):
                    raise
                return _render_error_page(request, error.status_code, str(error.detail), error.headers)

        return handle


def _render_error_page(request: Request, status: int, detail: str, headers: Any = None) -> Response:
    context: Context = request.app.state.context
    text = render_template(context.public_url, "error.html", detail=detail, status=status, facts=context.chain_facts)
    shown = build_html_response(text, status=status)
    shown.headers.update(headers or {})
    return shown


_TEMPLATES: Final = Templates(Path(__file__).parent / "templates")


def render_template(address: str, template: str, /, **values: object) -> str:
    """Returns a page or a part of one, with links that keep the path in the service's `address`."""
    return _TEMPLATES.render(template, base=path_of(address), **values)
