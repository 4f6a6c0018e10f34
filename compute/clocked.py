"""An HTTP transport that bounds the time of a whole answer by the clock.

A read timeout is from one byte to the next: who sends headers, or the framing of chunks, a byte at a time is never
late.
"""

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore
import httpx

from gradmarket.market.wire import ANSWER_WITHIN


class _Clock(threading.local):
    """The bound of the request that this thread makes."""

    seconds = math.inf
    until = math.inf

    def start(self, seconds: float) -> None:
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        self.until = time.monotonic() + self.seconds

    def left(self) -> float:
        """Returns the seconds left; raises httpcore.ReadError where there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadError(f"the answer did not end within {self.seconds:g} seconds")
        return left


class _ClockedStream(httpcore.NetworkStream):
    """A connection whose reads end at the clock's time; each write starts the clock anew."""

    def __init__(self, stream: httpcore.NetworkStream, clock: _Clock) -> None:
        self._stream = stream
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._clock.left()
        bound = left if timeout is None else min(timeout, left)
        return self._stream.read(max_bytes, None if bound == math.inf else bound)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._clock.restart()

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return _ClockedStream(self._stream.start_tls(*arguments, **named), self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _ClockedBackend(httpcore.SyncBackend):
    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def connect_tcp(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return _ClockedStream(super().connect_tcp(*arguments, **named), self._clock)


class ClockedTransport(httpx.BaseTransport):
    """Like httpx.HTTPTransport without proxies; it heeds ANSWER_WITHIN among a request's extensions."""

    def __init__(self, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None, trust_env: bool = False) -> None:
        self._clock = _Clock()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=trust_env),
            keepalive_expiry=5.0,
            socket_options=socket_options,
            network_backend=_ClockedBackend(self._clock),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._clock.start(request.extensions.get(ANSWER_WITHIN, math.inf))
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_of_httpx():
            answer = self._pool.handle_request(asked)
        body = _ClockedBody(answer, self._clock)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()


class _ClockedBody(httpx.SyncByteStream):
    """An answer's body. Another request of the same thread may be made between two of its parts."""

    def __init__(self, answer: httpcore.Response, clock: _Clock) -> None:
        self._answer, self._clock = answer, clock
        self._seconds, self._until = clock.seconds, clock.until

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._answer.stream)  # type: ignore[arg-type]
        while True:
            self._clock.seconds, self._clock.until = self._seconds, self._until
            with _as_of_httpx():
                part = next(parts, None)
            if part is None:
                return
            yield part

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _as_of_httpx() -> Iterator[None]:
    """Raises httpcore's errors as httpx's, which have the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, *_OTHERS) as error:
        raise getattr(httpx, type(error).__name__, httpx.TransportError)(str(error)) from error


_OTHERS: Final = (httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable)
