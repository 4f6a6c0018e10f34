"""The HTTP transport of every client: proxies and trust as the environment has them, and a whole answer's time bounded.

A read timeout runs from one byte to the next, so a server that sends headers, or the framing of chunks, a byte at a
time never exceeds it.
"""

import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpcore
import httpx

from gradmarket.market.wire.poll import ANSWER_WITHIN, KEPT_ALIVE
from gradmarket.network.environment import build_ssl_context, proxy_of, proxy_without_secret

HOST_NAMED: Final = "host_named"
"""Name of a request's extension: the host that it is for, where its URL has the checked address in its place."""
SOCKET_OPTIONS: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in KEPT_ALIVE.items()
        if hasattr(socket, name)
    ),
]


class UntrustedCertificate(httpx.ConnectError):
    """The server's certificate is of no trusted authority, of another host, or expired."""


class _Clock(threading.local):
    """The bound of the request that this thread makes. `names`: the host that TLS verifies in place of an address."""

    seconds = math.inf
    until = math.inf
    names: tuple[str, str] = ("", "")

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

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Verifies the request's host where it names an address: a proxy's own name is verified as it is."""
        address, host = self._clock.names
        name = host if server_hostname == address else server_hostname
        return _ClockedStream(self._stream.start_tls(ssl_context, name, timeout), self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _ClockedBackend(httpcore.SyncBackend):
    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *_others: Any, **named: Any) -> Any:
        """Keeps connections alive to proxies too, for which httpcore takes no options."""
        named["socket_options"] = SOCKET_OPTIONS
        return _ClockedStream(super().connect_tcp(host, port, timeout, **named), self._clock)


class ClockedTransport(httpx.BaseTransport):
    """Sends requests as network.environment has it; heeds ANSWER_WITHIN and HOST_NAMED among a request's extensions.

    Raises the errors of httpx's own transport, UntrustedCertificate, and Refused where the environment's settings are
    wrong.
    """

    def __init__(self) -> None:
        self._clock = _Clock()
        self._pools: dict[tuple[str, str | None], httpcore.ConnectionPool] = {}
        self._making = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._clock.start(request.extensions.get(ANSWER_WITHIN, math.inf))
        url, host = request.url, request.extensions.get(HOST_NAMED, request.url.host)
        self._clock.names = (url.raw_host.decode("ascii"), host)
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        proxy = proxy_of(url.scheme, host, url.port)
        with raise_as_httpx(host, proxy):
            answer = self._find_pool(url.scheme, proxy).handle_request(asked)
        body = _ClockedBody(answer, self._clock)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _find_pool(self, scheme: str, proxy: str | None) -> httpcore.ConnectionPool:
        """Returns the connections of a scheme that go through this proxy, or directly."""
        with self._making:
            if (scheme, proxy) not in self._pools:
                self._pools[scheme, proxy] = httpcore.ConnectionPool(
                    ssl_context=build_ssl_context() if scheme == "https" else None,
                    keepalive_expiry=5.0,
                    network_backend=_ClockedBackend(self._clock),
                    proxy=None if proxy is None else build_proxy(proxy),
                )
            return self._pools[scheme, proxy]


def build_proxy(proxy: str) -> httpcore.Proxy:
    parts = urlsplit(proxy)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return httpcore.Proxy(
        f"{proxy_without_secret(proxy)}/", auth, ssl_context=build_ssl_context() if parts.scheme == "https" else None
    )


class _ClockedBody(httpx.SyncByteStream):
    """An answer's body. Another request of the same thread may be made between two of its parts."""

    def __init__(self, answer: httpcore.Response, clock: _Clock) -> None:
        self._answer, self._clock = answer, clock
        self._seconds, self._until = clock.seconds, clock.until

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._answer.stream)  # type: ignore[arg-type]
        while True:
            self._clock.seconds, self._clock.until = self._seconds, self._until
            with raise_as_httpx():
                part = next(parts, None)
            if part is None:
                return
            yield part

    def close(self) -> None:
        self._answer.close()


@contextmanager
def raise_as_httpx(host: str = "", proxy: str | None = None) -> Iterator[None]:
    """Raises httpcore's errors as httpx's, which have the same names, and names the proxy that failed."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, *_OTHERS) as error:
        if isinstance(error, httpcore.ConnectError) and (fault := _certificate_fault(error)):
            raise UntrustedCertificate(f"the certificate of {host} is not trusted: {fault}") from error
        through = f"through the proxy {proxy_without_secret(proxy)}: " if proxy else ""
        message = f"{through}{error}" if str(error) or not proxy else f"{through}{type(error).__name__}"
        raise getattr(httpx, type(error).__name__, httpx.TransportError)(message) from error
    except UnicodeError as error:  # the system encodes the name
        raise httpx.ConnectError(f"{host} is no host's name: {error}") from error


def _certificate_fault(error: BaseException | None) -> str | None:
    """Returns the reason, in words, why a certificate was not trusted, if that is the error.

    Causes may go round in a circle: an error that is handled while another request fails is the context of that one's.
    """
    passed = set[int]()
    while error is not None and id(error) not in passed:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        passed.add(id(error))
        error = error.__cause__ or error.__context__
    return None


_OTHERS: Final = (httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, httpcore.ProxyError)
