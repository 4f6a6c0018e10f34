"""Which addresses a download may go to: a market's links must not make this machine ask things of its own network."""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

import httpx

from gradmarket.market.wire import KEPT_ALIVE
from gradmarket.worker.problems import DownloadFailed, DownloadRefused

PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

SOCKET_OPTIONS: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in KEPT_ALIVE.items()
        if hasattr(socket, name)
    ),
]
Resolve = Callable[[str, int], list[str]]
"""All IP addresses of a host."""


@dataclass(frozen=True)
class NetworkPlace:
    """A link that was judged: `url` names the checked IP address, so no second look-up can lead elsewhere."""

    url: httpx.URL
    host: str
    """The Host header and the name that TLS verifies."""
    link: str
    own: bool
    """It is the market's own origin."""


def resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DownloadFailed(f"{host} has no address: {error}") from error
    return [str(address[4][0]) for address in found]


class PublicOnly(httpx.HTTPTransport):
    """Requests go to public addresses alone, looked up and judged anew for each: for markets that nobody named."""

    def __init__(self, look_up: Resolve = resolve) -> None:
        super().__init__(socket_options=SOCKET_OPTIONS)
        self._look_up = look_up

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.ConnectError in place of DownloadRefused and DownloadFailed."""
        try:
            where = place(str(request.url), "", self._look_up, own=False)
        except (DownloadRefused, DownloadFailed) as error:
            raise httpx.ConnectError(str(error), request=request) from error
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = where.url
        return super().handle_request(request)


def place(
    link: str,
    origin: str,
    look_up: Resolve = resolve,
    own: bool = True,
    allowed: frozenset[str] = frozenset(),
    named: bool = True,
) -> NetworkPlace:
    """Where to fetch `link` from, which may be relative to the market's `origin`.

    The market's own origin is allowed, wherever it is, if the worker's owner `named` it; but not (`own` false) after a
    redirect from elsewhere. So are the origins `allowed`, which the owner named too: to be given only where the market
    itself says the link, not where a job's dataset does. Any other host must have public addresses only. Raises
    DownloadRefused for other schemes, private, loopback and link-local addresses, and credentials.
    """
    try:
        url = httpx.URL(urljoin(origin + "/", link))
    except httpx.InvalidURL as error:
        raise DownloadRefused(f"{link[:200]!r} is no address: {error}") from error
    if url.scheme not in PORTS or not url.host:
        raise DownloadRefused(f"{link[:200]!r} is neither http nor https")
    if url.userinfo:
        raise DownloadRefused("the link carries credentials")
    home = own and _origin(url) == _origin(httpx.URL(origin))
    if home and named:
        return NetworkPlace(url, url.netloc.decode(), str(url), True)
    if _origin(url) in {_origin(httpx.URL(named)) for named in allowed}:
        return NetworkPlace(url, url.netloc.decode(), str(url), False)
    address = _public(url.host, url.port or PORTS[url.scheme], look_up)
    return NetworkPlace(url.copy_with(host=address), url.netloc.decode(), str(url), home)


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return (url.scheme, url.host, url.port or PORTS.get(url.scheme, 0))


def _public(host: str, port: int, look_up: Resolve) -> str:
    found = look_up(host, port)
    for address in found:
        if not is_public(address):
            fix = "if it is your market's store, name its origin in GRADMARKET_WORKER_STORES"
            raise DownloadRefused(f"{host} is {address}, which is not a public address; {fix}")
    if not found:
        raise DownloadFailed(f"{host} has no address")
    return found[0]


def is_public(address: str) -> bool:
    """Whether an IP address is globally routable, unwrapped from IPv4-mapped, 6to4, Teredo and NAT64 forms."""
    try:
        parsed = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.is_global and not parsed.is_multicast and all(map(_global, _inside(parsed)))
    return _global(parsed)


def _global(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not address.is_multicast


def _inside(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 one leads to."""
    inside = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [found for found in inside if found is not None]
