"""The worker's own page, for its machine alone: it listens on loopback, changes nothing, and needs no key.

A foreign page may point its name at this machine to read it (DNS rebinding): only requests that name the machine itself
are answered. Everybody who is logged in on the machine can read the worker's earnings.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gradmarket.network.thread_server import serve_in_thread
from gradmarket.pages import ASSETS, NOSNIFF, Templates, build_html_response
from worker.features.owner_page.elsewhere import Outlook
from worker.features.owner_page.own_facts import OwnFacts
from worker.features.owner_page.sentences import list_own_tables, list_warnings

LOOPBACK: Final = "127.0.0.1"
NAMES: Final = (LOOPBACK, "localhost")
AT_ONCE: Final = 16
"""The most connections; more are refused, so that no local user slows the worker down by them."""
FRESH_S: Final = 1.0
"""Seconds for which all viewers get the same reading."""
RENDER: Final = Templates(Path(__file__).parent / "templates").render


class OwnPage:
    """Serves the facts of the worker's folder, read once a second at most, and the latest of `outlook`."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._lock = threading.Lock()
        self._read: OwnFacts | None = None

    def app(self) -> Starlette:
        routes = [
            Route("/", self._serve_page),
            Route("/now", self._serve_page_part),
            Route("/facts", self._serve_facts),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts])

    def _serve_page(self, _request: Request) -> Response:
        own = self._load_own_facts()
        return build_html_response(
            RENDER("own_page.html", now=self._render_page_part(own), address=own.address, folder=own.folder)
        )

    def _serve_page_part(self, _request: Request) -> Response:
        return build_html_response(self._render_page_part(self._load_own_facts()))

    def _serve_facts(self, _request: Request) -> Response:
        return JSONResponse({**asdict(self._load_own_facts()), **asdict(self._outlook.newest)})

    def _render_page_part(self, own: OwnFacts) -> str:
        newest = self._outlook.newest
        return RENDER("own_now.html", own=own, warnings=list_warnings(own, newest), tables=list_own_tables(own, newest))

    def _load_own_facts(self) -> OwnFacts:
        with self._lock:
            if self._read is None or abs(time.time() - self._read.at) > FRESH_S:
                self._read = self._outlook.own.look(time.time())
            return self._read


@contextmanager
def serve_own_page(outlook: Outlook, port: int) -> Iterator[str]:
    """Serves the page in a thread until the `with` block ends; yields its address. Raises Conflict for a taken port."""
    app = OwnPage(outlook).app()
    with outlook.running(), serve_in_thread(app, LOOPBACK, port, NOSNIFF, AT_ONCE, "--page") as address:
        yield address
