"""Connections of http.client whose answers end at a clock's time, with httpx's errors.

A read timeout is from one byte to the next: who sends headers, or the framing of chunks, a byte at a time is never
late. A body is read into the bytes that are given on: httpcore and h11 copy each 64 KiB five times, which takes longer
than to hash and to write them.
"""

import io
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from http.client import HTTPConnection
from typing import Any, Final, cast

import httpx

PORTS: Final = {"http": 80, "https": 443}

SocketOption = tuple[int, int, int]


class AnswerClock(threading.local):
    """The bound of the request that this thread makes."""

    seconds = math.inf
    until = math.inf

    def start(self, seconds: float) -> None:
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        self.until = time.monotonic() + self.seconds

    def at_most(self, timeout: float | None) -> float | None:
        """Returns the timeout, or the seconds left where these are fewer; raises httpx.ReadError where none are."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise httpx.ReadError(f"the answer did not end within {self.seconds:g} seconds")
        bound = left if timeout is None else min(timeout, left)
        return None if bound == math.inf else bound


class ClockedConnection(HTTPConnection):
    """One connection to the origin of `url`, for one request at a time."""

    def __init__(
        self, url: httpx.URL, clock: AnswerClock, tls: ssl.SSLContext, options: Iterable[SocketOption]
    ) -> None:
        super().__init__(url.raw_host.decode("ascii"), url.port or PORTS[url.scheme])
        self._clock, self._tls, self._options = clock, tls if url.scheme == "https" else None, options
        self.timeouts: dict[str, float | None] = {}
        """Seconds by `connect`, `read` and `write`."""
        self._name = self.host
        self.idle_since = -math.inf

    def sends(self, request: httpx.Request) -> None:
        """Connects where that is still to do, and sends the request. Raises httpx's errors, and the body's own.

        Where the other side hangs up in the middle, it may have answered before.
        """
        self.timeouts = request.extensions.get("timeout", {})
        self._name = request.extensions.get("sni_hostname") or self.host
        self.putrequest(request.method, request.url.raw_path.decode("ascii"), True, True)
        for name, value in request.headers.raw:
            self.putheader(name, value)
        body = iter(cast(httpx.SyncByteStream, request.stream))
        try:
            self.endheaders(body, encode_chunked="transfer-encoding" in request.headers)
        except httpx.WriteError:
            return

    def connect(self) -> None:
        bound = self.timeouts.get("connect")
        try:
            opened = socket.create_connection((self.host, self.port), bound)
            for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *self._options):
                opened.setsockopt(*option)
            if self._tls is not None:
                opened = self._tls.wrap_socket(opened, server_hostname=self._name)
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        self.sock = cast(Any, _ClockedSocket(opened, self._clock, self))

    @property
    def has_news(self) -> bool:
        """Returns whether something has come, though nothing was asked: the other side has hung up."""
        poll = select.poll()
        poll.register(self.sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def hang_up(self) -> None:
        """Closes it under whoever reads from it."""
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_RDWR)
        self.close()


class _ClockedSocket:
    """What http.client uses of a socket. Reads end at the clock's time; each write starts the clock anew."""

    def __init__(self, opened: socket.socket, clock: AnswerClock, connection: ClockedConnection) -> None:
        self._socket, self._clock, self._connection = opened, clock, connection

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002
        return io.BufferedReader(_Received(self._socket, self._clock, self._connection))

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                self._socket.settimeout(self._connection.timeouts.get("write"))
                left = left[self._socket.send(left) :]
        except TimeoutError as error:
            raise httpx.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpx.WriteError(str(error)) from error
        self._clock.restart()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _Received(io.RawIOBase):
    """What a socket receives."""

    def __init__(self, opened: socket.socket, clock: AnswerClock, connection: ClockedConnection) -> None:
        self._socket, self._clock, self._connection = opened, clock, connection
        self._raw = cast(io.RawIOBase, opened.makefile("rb", buffering=0))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        try:
            self._socket.settimeout(self._clock.at_most(self._connection.timeouts.get("read")))
            return self._raw.readinto(buffer)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error

    def close(self) -> None:
        self._raw.close()
        super().close()
