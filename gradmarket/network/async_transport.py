"""The HTTP transport of asynchronous clients: proxies and trust as the environment has them, as ClockedTransport."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Final, cast

import httpcore
import httpx

from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network.clocked import SOCKET_OPTIONS, build_proxy, raise_as_httpx
from gradmarket.network.environment import build_ssl_context, proxy_of

KEPT_S: Final = 5.0
PART: Final = 1 << 18
"""Bytes of a request's body that are written at a time, within the write timeout each."""


class AsyncClockedTransport(httpx.AsyncBaseTransport):
    """Raises the errors of httpx's own, UntrustedCertificate, and Refused where the environment's settings are wrong.

    An answer begins within ANSWER_WITHIN of the last byte sent, if that is among a request's extensions.
    """

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str | None], httpcore.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, within = request.url, request.extensions.get(ANSWER_WITHIN, math.inf)
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        proxy = proxy_of(url.scheme, url.host, url.port)
        try:
            with raise_as_httpx(url.host, proxy):
                async with asyncio.timeout(None if within == math.inf else within) as bound:
                    asked.stream = _restart_at_each_part(request.stream, bound, within)
                    answer = await self._find_pool(url.scheme, proxy).handle_async_request(asked)
        except TimeoutError as error:
            raise httpx.ReadError(f"the answer did not begin within {within:g} seconds") from error
        body = _Body(answer)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _find_pool(self, scheme: str, proxy: str | None) -> httpcore.AsyncConnectionPool:
        if (scheme, proxy) not in self._pools:
            self._pools[scheme, proxy] = httpcore.AsyncConnectionPool(
                ssl_context=build_ssl_context() if scheme == "https" else None,
                keepalive_expiry=KEPT_S,
                socket_options=SOCKET_OPTIONS,
                proxy=None if proxy is None else build_proxy(proxy),
            )
        return self._pools[scheme, proxy]


async def _restart_at_each_part(
    content: httpx.SyncByteStream | httpx.AsyncByteStream, bound: asyncio.Timeout, seconds: float
) -> AsyncIterator[bytes]:
    """Yields the request's body in parts, each of which starts the bound anew, however long they take."""
    async for whole in cast(httpx.AsyncByteStream, content):
        for begin in range(0, len(whole), PART):
            yield whole[begin : begin + PART]
            if seconds < math.inf:
                bound.reschedule(asyncio.get_running_loop().time() + seconds)


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with raise_as_httpx():
            async for part in self._answer.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()
