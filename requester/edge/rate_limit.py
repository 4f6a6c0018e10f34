"""Refuses who knocks too often, before a token is looked up or a body read. A poll that waits counts once."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog
from blake3 import blake3
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.types import ASGIApp, Receive, Scope, Send

from gradmarket.requester.api import problems
from gradmarket.requester.api.auth_routes import WORKER, Callers, Identity
from gradmarket.requester.api.callers import among, bearer, caller, speaks_for_others, subnet
from gradmarket.requester.api.token_buckets import Buckets, Rate, retry_after
from gradmarket.requester.context import Context
from gradmarket.requester.edge.body import STREAMED

SIGN_IN: Final = 10.0
"""Requests' worth: a signature is recovered, a worker's row is written, and on a local chain gas is sent."""
BYTES: Final = 1 << 14
"""Of a body: each so many count as a request more, for JSON costs its reader more than its sender."""
log = structlog.get_logger("gradmarket.requests")


class RateLimit:
    """By address and by token; a wallet, whichever of its tokens it sends, is counted where it is known (api.auth).

    A stranger is whoever sends no token of the requester's or of a worker that was paid before: tokens of new wallets
    are free, so all strangers of an address share its allowance. A refusal is held back for a while: who floods waits
    on each of his connections, of which an address has so many and no more (edge.patience).
    """

    def __init__(self, app: ASGIApp, context: Context, callers: Callers) -> None:
        settings = context.settings
        self._app = app
        self._context, self._callers = context, callers
        self._trusted, self._exempt = settings.trusted_proxies, settings.exempt
        self._held_s, self._longest = settings.refused_s, settings.max_body_bytes
        self._addresses = Buckets(Rate(settings.address_rate, settings.address_burst))
        self._strangers = Buckets(Rate(settings.stranger_rate, settings.stranger_burst))
        self._lookups = Buckets(Rate(settings.stranger_rate, settings.stranger_burst))
        self._tokens = Buckets(Rate(settings.token_rate, settings.token_burst))
        self._warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, wait = await self._wait(scope) if scope["type"] == "http" else ("", 0.0)
        if wait == 0.0:
            await self._app(scope, receive, send)
            return
        self._context.meters.limited.labels(kind).inc()
        await asyncio.sleep(self._held_s)
        detail = f"too many requests from one {kind}: come again in {wait:.1f} s"
        await problems.response(429, detail, retry_after(wait))(scope, receive, send)

    async def _wait(self, scope: Scope) -> tuple[str, float]:
        """Who is refused, and for how long.

        `source` in the scope's state is the address of whoever is neither with an API token nor without limits.
        """
        token, source = bearer(scope), self._source(scope)
        scope.setdefault("state", {})["source"] = source
        if source is not None:
            wait = self._addresses.take(source)
            proven = await self._proven(source, token) if wait == 0.0 and token is not None else None
            if proven is not None and proven.role != WORKER:
                scope["state"]["source"] = None
            if wait == 0.0 and proven is None:
                wait = self._strangers.take(source, self._price(scope))
            if wait > 0.0:
                return "address", wait
        return "token", 0.0 if token is None else self._tokens.take(blake3(token.encode()).digest())

    async def _proven(self, source: str, token: str) -> Identity | None:
        """A token that is not remembered is looked up, so many of an address, whatever else comes from there."""
        found = self._callers.proven(token)
        if found is None and self._callers.known(token, self._context.clock()) is None:
            if self._lookups.take(source) == 0.0:
                with suppress(OperationalError, InterfaceError):  # the door says what is wrong with the database
                    await self._callers.identify(self._context, token)
            found = self._callers.proven(token)
        return found

    def _source(self, scope: Scope) -> str | None:
        """The address that is counted; none for one without limits.

        Who passes requests on for others, and is no trusted proxy, has them: it could be anybody.
        """
        host = caller(scope, self._trusted)
        if not among(host, self._exempt):
            return subnet(host)
        if not speaks_for_others(scope, self._trusted):
            return None
        if not self._warned:
            self._warned = True
            log.warning("a proxy is not trusted", address=host, remedy=REMEDY)
        return host

    def _price(self, scope: Scope) -> float:
        """In requests."""
        if scope["path"] == "/v1/session":
            return SIGN_IN if scope["method"] == "POST" else 1.0
        if scope["path"].startswith(STREAMED):
            return 1.0
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        length = int(declared) if declared.isdigit() else self._longest
        return 1.0 + (self._longest if b"transfer-encoding" in headers else min(length, self._longest)) / BYTES


REMEDY: Final = (
    "name it in GRADMARKET_TRUSTED_PROXIES: until then all who come through it share the limits of one address"
)
