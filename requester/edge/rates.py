"""Refuses who knocks too often, before a token is looked up or a body read. A poll that waits counts once."""

from blake3 import blake3
from starlette.types import ASGIApp, Receive, Scope, Send

from gradmarket.requester.api import problems
from gradmarket.requester.api.callers import among, caller
from gradmarket.requester.api.rates import Buckets, Rate, retry_after
from gradmarket.requester.meters import Meters
from gradmarket.requester.settings import Settings


class RateLimit:
    """By address and by token; a wallet, whichever of its tokens it sends, is counted where it is known (api.auth)."""

    def __init__(self, app: ASGIApp, settings: Settings, meters: Meters) -> None:
        self._app = app
        self._meters = meters
        self._trusted = settings.trusted_proxies
        self._exempt = settings.unlimited
        self._addresses = Buckets(Rate(settings.address_rate, settings.address_burst))
        self._tokens = Buckets(Rate(settings.token_rate, settings.token_burst))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, wait = self._wait(scope) if scope["type"] == "http" else ("", 0.0)
        if wait == 0.0:
            await self._app(scope, receive, send)
            return
        self._meters.limited.labels(kind).inc()
        detail = f"too many requests from one {kind}: come again in {wait:.1f} s"
        await problems.response(429, detail, retry_after(wait))(scope, receive, send)

    def _wait(self, scope: Scope) -> tuple[str, float]:
        host = caller(scope, self._trusted)
        if not among(host, self._exempt) and (wait := self._addresses.take(host)) > 0:
            return "address", wait
        token = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        return "token", 0.0 if token is None else self._tokens.take(blake3(token).digest())
