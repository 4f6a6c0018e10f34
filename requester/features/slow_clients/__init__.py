"""Limits on connections: clients that are silent, too slow or too many.

uvicorn limits only the pause between two requests. A "slow loris" attack holds connections by sending a header or a
body byte by byte, or by never reading the answer, all without a token. A protocol receives bytes and knows no requests,
an application is called for a request and receives no bytes: both report to the `Connection` that they share, which is
found by the client's address and port. Only asyncio's and ASGI's own methods are used.
"""

import asyncio
import ipaddress
from asyncio import Protocol
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from requester.api import problems
from requester.api.callers import Network, is_in_networks, unmap_ipv4
from requester.feature import Feature
from requester.settings import RequesterSettings

HEADER_LINES: Final = 100
"""Header lines of a request, at most: each costs its reader more than its bytes."""
MAX_HEADER_BYTES: Final = 16 * 1024
AHEAD: Final = 1 << 19
"""Bytes that may come beyond a request's declared body while it is answered: of the next request, or of chunks."""
FRAMING: Final = 8
"""Bytes on the wire for each byte of a chunked body, at most: a chunk of one byte takes six."""


def compute_subnet(host: str) -> str:
    """Returns the unit of rate limits: the /64 of an IPv6 address, since a subscriber has 2^64 addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


SITE: Final = 16
"""Busy /64 networks of IPv6 at once in a /48, which a customer gets whole: 65,536 of them."""


@lru_cache(maxsize=4096)
def find_site_network(name: str) -> str | None:
    """Returns the /48 of an IPv6 address's /64, as `subnet` names it; None for any other name. It has SITE limits."""
    return str(ipaddress.ip_network(name).supernet(new_prefix=48)) if name.endswith("/64") else None


@dataclass(frozen=True)
class ConnectionLimits:
    """Seconds for headers, seconds of silence in a body or an answer, and connections of an address not `exempt`."""

    header_s: float
    silence_s: float
    most: int
    exempt: frozenset[Network]


class Connection:
    """Counts a connection's bytes and times, and aborts it beyond the limits."""

    def __init__(self, transport: asyncio.Transport, limits: ConnectionLimits, name: str) -> None:
        self._transport, self._limits = transport, limits
        self._loop = asyncio.get_running_loop()
        self._requests = 0
        self._allowed = MAX_HEADER_BYTES
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None
        self.name = name
        self.peer = _find_peer(transport)
        self.aborted = False
        self._await_headers()

    def heard(self, length: int) -> bool:
        """Counts bytes that have come; returns False, and aborts, if there were too many already for one request."""
        if self._allowed < 0:
            self.abort()
            return False
        self._allowed -= length
        return True

    def begin(self, length: int | None) -> None:
        """Notes that a request's headers are complete; `length` bytes of body follow, or a chunked one if None."""
        self._requests += 1
        self._allowed = AHEAD + (length or 0)
        _cancel_timer(self._headers_due)

    def read(self, length: int) -> None:
        """Counts `length` bytes of a chunked body that the application took; as many may come again."""
        self._allowed += FRAMING * length

    def end(self) -> None:
        self._requests -= 1
        if not self._requests:
            self._await_headers()

    def start_read_timer(self) -> None:
        """Starts the time of a client that does not read its answer as fast as it is written."""
        self._reading_due = self._loop.call_later(self._limits.silence_s, self.abort)

    def taken(self) -> None:
        """Stops that time: the client has read the waiting bytes."""
        _cancel_timer(self._reading_due)

    def close(self) -> None:
        _cancel_timer(self._headers_due)
        _cancel_timer(self._reading_due)

    def abort(self) -> None:
        self.aborted = True
        self._transport.abort()

    def _await_headers(self) -> None:
        self._headers_due = self._loop.call_later(self._limits.header_s, self.abort)


class Connections:
    """Finds a request's connection, and counts those of each address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._open = Counter[str]()
        self._by_peer: dict[tuple[str, int] | None, Connection] = {}

    def open_connection(self, transport: asyncio.Transport) -> Connection | None:
        """Returns the new connection, or None if its address has too many."""
        peer = _find_peer(transport)
        host = unmap_ipv4(peer[0]) if peer else ""
        name = "" if is_in_networks(host, self._limits.exempt) else compute_subnet(host)
        larger = find_site_network(name)
        if name and self._open[name] >= self._limits.most:
            return None
        if larger is not None and self._open[larger] >= SITE * self._limits.most:
            return None
        self._open.update(_list_counted_names(name))
        connection = Connection(transport, self._limits, name)
        self._by_peer[peer] = connection
        return connection

    def leave(self, connection: Connection) -> None:
        connection.close()
        for name in _list_counted_names(connection.name):
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
        if self._by_peer.get(connection.peer) is connection:
            del self._by_peer[connection.peer]

    def of(self, scope: Scope) -> Connection | None:
        return self._by_peer.get(scope["client"]) if scope["type"] == "http" else None


def _list_counted_names(name: str) -> tuple[str, ...]:
    """Returns the names under which a connection is counted: the address and, for IPv6, its /48."""
    larger = find_site_network(name)
    return (name,) if larger is None else (name, larger)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol; `protocol` makes a class of it that has `guard`."""

    guard: ClassVar[Connections]
    guarded: Connection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.guarded = self.guard.open_connection(transport)
        if self.guarded is None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.guarded is not None and self.guarded.heard(len(data)):
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.guarded is not None:
            self.guarded.start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.guarded is not None:
            self.guarded.taken()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.guarded is not None:
            self.guard.leave(self.guarded)
        super().connection_lost(exc)


def build_protocol_class(connections: Connections) -> type[asyncio.Protocol]:
    """Returns a protocol class for uvicorn's `http` that reports received bytes to these connections."""
    return type("Guarded", (GuardedProtocol,), {"guard": connections})


class SlowClients:
    """Reports begin and end of requests to their connection; aborts it if a body stands still for `silence_s`."""

    def __init__(self, app: ASGIApp, connections: Connections, silence_s: float) -> None:
        self._app, self._connections, self._silence_s = app, connections, silence_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connections.of(scope)
        if connection is None:
            await self._app(scope, receive, send)
            return
        size, length, chunked = len(scope["raw_path"]), 0, False
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                chunked = True
        if size > MAX_HEADER_BYTES or len(scope["headers"]) > HEADER_LINES:
            detail = f"headers have at most {MAX_HEADER_BYTES} bytes in {HEADER_LINES} lines"
            await problems.build_problem_response(431, detail, {"Connection": "close"})(scope, receive, send)
            return
        connection.begin(None if chunked else length)
        body = _Body(connection, receive, self._silence_s, chunked)
        try:
            read = body.receive if chunked or length else receive
            await self._app(scope, read, _guard_send(connection, send))
        finally:
            body.close()
            connection.end()


class _Body:
    """Aborts a body's connection if nothing comes for `silence_s` while it is waited for.

    One timer serves all waits: it checks when the last wait began, and is set again where that was less than
    `silence_s` ago.
    """

    def __init__(self, connection: Connection, own: Receive, silence_s: float, chunked: bool) -> None:
        self._connection, self._own, self._silence_s, self._chunked = connection, own, silence_s, chunked
        self._loop = asyncio.get_running_loop()
        self._complete = False
        self._waits_since: float | None = None
        self._silent_due: asyncio.TimerHandle | None = None

    async def receive(self) -> Message:
        if self._complete:
            return await self._own()
        self._waits_since = self._loop.time()
        if self._silent_due is None:
            self._silent_due = self._loop.call_later(self._silence_s, self._check_silence)
        try:
            message = await self._own()  # a disconnect, once uvicorn has noticed that the connection was aborted
        finally:
            self._waits_since = None
        self._complete = not message.get("more_body", False)
        if self._chunked:
            self._connection.read(len(message.get("body", b"")))
        return message

    def close(self) -> None:
        _cancel_timer(self._silent_due)

    def _check_silence(self) -> None:
        self._silent_due = None
        if self._waits_since is None:
            return
        due = self._waits_since + self._silence_s
        if due > self._loop.time():
            self._silent_due = self._loop.call_at(due, self._check_silence)
        else:
            self._connection.abort()


def _guard_send(connection: Connection, own: Send) -> Send:
    async def send(message: Message) -> None:
        if not connection.aborted:  # uvloop raises where something is written to a transport that was aborted
            await own(message)

    return send


def _find_peer(transport: asyncio.Transport) -> tuple[str, int] | None:
    """Returns the client's address and port, as uvicorn writes them into a request's scope."""
    peer = transport.get_extra_info("peername")
    return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None


def _cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class SlowClientsFeature(Feature):
    name = "slow_clients"

    def guard_connections(self, app: ASGIApp, settings: RequesterSettings) -> tuple[ASGIApp, type[Protocol]]:
        exempt = settings.exempt | settings.trusted_proxies
        limits = ConnectionLimits(settings.header_s, settings.silence_s, settings.address_connections, exempt)
        connections = Connections(limits)
        return SlowClients(app, connections, settings.silence_s), build_protocol_class(connections)
