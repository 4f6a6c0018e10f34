"""An HTTP transport that bounds the time of a whole answer by the clock, and reads large bodies in few steps."""

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from typing import Final

import httpx

from gradmarket.compute.connections import AnswerClock, ClockedConnection, SocketOption
from gradmarket.market.wire import ANSWER_WITHIN

KEPT_S: Final = 5.0
"""Seconds for which a connection is kept for the next request."""
AT_ONCE: Final = 2**18
"""Most bytes of a body that are read at a time."""

Origin = tuple[str, str, int | None, str]


class ClockedTransport(httpx.BaseTransport):
    """Like httpx.HTTPTransport without proxies; it heeds ANSWER_WITHIN among a request's extensions."""

    def __init__(self, socket_options: Iterable[SocketOption] = (), trust_env: bool = False) -> None:
        self._clock = AnswerClock()
        self._options = tuple(socket_options)
        self._tls = httpx.create_ssl_context(trust_env=trust_env)
        self._lock = threading.Lock()
        self._idle: dict[Origin, list[ClockedConnection]] = {}
        self._in_use: set[ClockedConnection] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._clock.start(request.extensions.get(ANSWER_WITHIN, math.inf))
        connection = self._taken(request)
        try:
            connection.sends(request)
            with _as_of_httpx():
                answer = connection.getresponse()
        except BaseException:
            self.ended(connection)
            raise
        body = _Body(self, self._clock, connection, _origin(request), answer)
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.getheaders()]
        told = {"http_version": b"HTTP/1.1", "reason_phrase": answer.reason.encode("latin-1")}
        return httpx.Response(answer.status, headers=headers, stream=body, extensions=told)

    def close(self) -> None:
        with self._lock:
            every = [*self._in_use, *(one for idle in self._idle.values() for one in idle)]
            self._idle.clear()
        for connection in every:
            with suppress(OSError):
                connection.hang_up()

    def _taken(self, request: httpx.Request) -> ClockedConnection:
        """Returns a connection to the request's origin: one that is kept, and still open, or one to connect."""
        with self._lock:
            kept = self._idle.get(_origin(request), [])
            while kept:
                connection = kept.pop()
                if time.monotonic() - connection.idle_since < KEPT_S and not connection.has_news:
                    break
                connection.close()
            else:
                connection = ClockedConnection(request.url, self._clock, self._tls, self._options)
            self._in_use.add(connection)
        return connection

    def ended(self, connection: ClockedConnection, origin: Origin | None = None) -> None:
        """Keeps a connection for the next request to this `origin`; closes it without."""
        with self._lock:
            self._in_use.discard(connection)
            if origin is not None and connection.sock is not None:
                connection.idle_since = time.monotonic()
                self._idle.setdefault(origin, []).append(connection)
                return
        connection.close()


class _Body(httpx.SyncByteStream):
    """An answer's body. Another request of the same thread may be made between two of its parts."""

    def __init__(
        self,
        transport: ClockedTransport,
        clock: AnswerClock,
        connection: ClockedConnection,
        origin: Origin,
        answer: HTTPResponse,
    ) -> None:
        self._transport, self._connection, self._origin, self._answer = transport, connection, origin, answer
        self._clock, self._seconds, self._until = clock, clock.seconds, clock.until

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._clock.seconds, self._clock.until = self._seconds, self._until
            with _as_of_httpx():
                part = self._answer.read1(AT_ONCE)
            if not part:
                break
            yield part
        if self._answer.length:
            raise httpx.RemoteProtocolError(f"the answer ended {self._answer.length} bytes early")

    def close(self) -> None:
        whole = self._answer.isclosed() or self._answer.length == 0
        self._answer.close()
        self._transport.ended(self._connection, self._origin if whole else None)


def _origin(request: httpx.Request) -> Origin:
    """Returns what a connection is good for; TLS has verified the name."""
    url = request.url
    return url.scheme, url.host, url.port, request.extensions.get("sni_hostname", "")


@contextmanager
def _as_of_httpx() -> Iterator[None]:
    """Raises what http.client says of a malformed answer as httpx's error."""
    try:
        yield
    except (HTTPException, ValueError) as error:
        raise httpx.RemoteProtocolError(f"no answer of HTTP: {error or type(error).__name__}") from error
