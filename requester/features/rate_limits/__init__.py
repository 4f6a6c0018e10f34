"""Limits on how often an address and a token may ask.

A client that sends too many requests is refused before a body is read. A long poll counts once.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

import structlog
from blake3 import blake3
from fastapi import FastAPI
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.types import ASGIApp, Receive, Scope, Send

from requester.api import problems
from requester.api.auth_routes import WORKER, Callers, Identity
from requester.api.callers import (
    Buckets,
    Network,
    Rate,
    is_in_networks,
    is_proxy,
    parse_bearer_token,
    resolve_caller,
    retry_after,
)
from requester.context import Context
from requester.feature import Feature
from requester.features.body_limits.token_first import STREAMED
from requester.features.slow_clients import SITE, compute_subnet, find_site_network

SIGN_IN: Final = 10.0
"""Requests that a sign-in counts as: it recovers a signature, writes a worker's row, and sends gas on a local chain."""
WITHDRAWAL: Final = "/withdrawal"
"""It costs as much as a sign-in: a signature is recovered, and a row written."""
BYTES: Final = 1 << 14
"""Bytes of a body that count as one more request, since JSON costs its reader more than its sender."""
FEW: Final = 16
"""Refusals of one address that wait at a time, beyond which each waits longer."""
LONGEST: Final = 5.0
"""Times the delay of a single refusal; clients give up after some 10 s."""
FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""Headers that proxies add."""
log = structlog.get_logger("gradmarket.requests")


def speaks_for_others(scope: Scope, trusted: frozenset[Network]) -> bool:
    """Returns whether the client forwards requests of others, by its headers, and is no trusted proxy."""
    return not is_proxy(scope, trusted) and any(name in FORWARDED for name, _ in scope["headers"])


class RateLimit:
    """Limits requests by address and by token; wallets are limited once their identity is known (api.auth_routes).

    A stranger sends neither a token of the requester nor one of a worker that was paid before. Tokens of new wallets
    are free, so all strangers of an address share its allowance. A sign-in is always a stranger's. All tokens of a
    paid worker share one bucket, from which the lengths of its bodies are taken too. A refusal is delayed, the longer
    the more refusals of its address wait: a client that floods waits on each of its connections, whose number is
    limited (features.slow_clients).
    """

    def __init__(self, app: ASGIApp, context: Context, callers: Callers) -> None:
        settings = context.settings
        self._app = app
        self._context, self._callers = context, callers
        self._trusted, self._exempt = settings.trusted_proxies, settings.exempt
        self._held_s, self._longest = settings.refused_s, settings.max_body_bytes
        self._held = Counter[str]()
        self._addresses = Buckets(Rate(settings.address_rate, settings.address_burst))
        self._strangers = Buckets(Rate(settings.stranger_rate, settings.stranger_burst))
        self._lookups = Buckets(Rate(settings.stranger_rate, settings.stranger_burst))
        self._tokens = Buckets(Rate(settings.token_rate, settings.token_burst))
        self._warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, wait = await self._compute_wait(scope) if scope["type"] == "http" else ("", 0.0)
        if wait == 0.0:
            await self._app(scope, receive, send)
            return
        self._context.meters.limited.labels(kind).inc()
        await self._delay_refusal(scope["state"]["source"] or "")
        detail = f"too many requests from one {kind}: come again in {wait:.1f} s"
        await problems.build_problem_response(429, detail, retry_after(wait))(scope, receive, send)

    async def _delay_refusal(self, source: str) -> None:
        self._held[source] += 1
        try:
            await asyncio.sleep(refusal_delay(self._held_s, self._held[source]))
        finally:
            self._held[source] -= 1
            if not self._held[source]:
                del self._held[source]

    async def _compute_wait(self, scope: Scope) -> tuple[str, float]:
        """Returns the limited subject ("address" or "token") and the seconds to wait; zero if the request is allowed.

        Sets `source` in the scope's state: the address, or None for an API token or an address without limits.
        """
        token, source = parse_bearer_token(scope), self._find_limited_source(scope)
        scope.setdefault("state", {})["source"] = source
        proven = None
        if source is not None:
            wait = _take_tokens(self._addresses, source)
            proven = await self._find_proven_identity(source, token) if wait == 0.0 and token is not None else None
            if proven is not None and proven.role != WORKER:
                scope["state"]["source"] = None
            if wait == 0.0 and (proven is None or _signs_in(scope)):  # no token takes part in a sign-in
                wait = _take_tokens(self._strangers, source, self._compute_price(scope))
            if wait > 0.0:
                return "address", wait
        if proven is not None and proven.role == WORKER:
            return "token", self._tokens.take(proven.subject, self._compute_price(scope))
        return "token", 0.0 if token is None else self._tokens.take(blake3(token.encode()).digest())

    async def _find_proven_identity(self, source: str, token: str) -> Identity | None:
        """Returns the token's identity if it is proven.

        API tokens are looked up at each request. Tokens that were never proven are looked up at a limited rate for
        each address.
        """
        now = self._context.clock()
        identity = self._callers.proven(token, now)
        if identity is not None or self._callers.known(token, now) is not None:
            return identity
        if self._callers.was_proven(token) or _take_tokens(self._lookups, source) == 0.0:
            with suppress(OperationalError, InterfaceError):  # the route reports the database's error
                identity = await self._callers.identify(self._context, token)
        return identity if identity is not None and identity.proven else None

    def _find_limited_source(self, scope: Scope) -> str | None:
        """Returns the address that is counted; None for one without limits.

        A proxy that is not trusted is limited even if its address is exempt, since anybody may stand behind it.
        """
        host = resolve_caller(scope, self._trusted)
        if not is_in_networks(host, self._exempt):
            return compute_subnet(host)
        if not speaks_for_others(scope, self._trusted):
            return None
        if not self._warned:
            self._warned = True
            log.warning("a proxy is not trusted", address=host, remedy=REMEDY)
        return host

    def _compute_price(self, scope: Scope) -> float:
        """Returns how many requests this one counts as."""
        if _signs_in(scope) or scope["path"].endswith(WITHDRAWAL):
            return SIGN_IN
        if scope["path"].startswith(STREAMED):
            return 1.0
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        length = int(declared) if declared.isdigit() else self._longest
        return 1.0 + (self._longest if b"transfer-encoding" in headers else min(length, self._longest)) / BYTES


def _take_tokens(buckets: Buckets, source: str, price: float = 1.0) -> float:
    """As Buckets.take, for an address and, where it is of IPv6, for its /48 too, which has SITE limits."""
    wait, larger = buckets.take(source, price), find_site_network(source)
    return wait if wait > 0 or larger is None else buckets.take(larger, price / SITE)


def _signs_in(scope: Scope) -> bool:
    return bool(scope["path"] == "/v1/session" and scope["method"] == "POST")


REMEDY: Final = (
    "name it in GRADMARKET_TRUSTED_PROXIES: until then all who come through it share the limits of one address"
)


def refusal_delay(base_s: float, waiting: int) -> float:
    """Returns the seconds that a refusal is delayed while `waiting` of its address wait, itself included.

    256 connections that retry at once make 26 requests a second instead of 128.
    """
    return base_s * min(LONGEST, max(1.0, waiting / FEW))


class RateLimitsFeature(Feature):
    name = "rate_limits"
    needs = ("body_limits", "slow_clients")

    def limit_requests(self, app: FastAPI, context: Context) -> None:
        app.add_middleware(RateLimit, context=context, callers=app.state.callers)
