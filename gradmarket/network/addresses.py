"""Decides which addresses a request may go to: links of strangers must not reach into this machine's own network."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from posixpath import normpath
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from gradmarket.network import DownloadFailed, DownloadRefused
from gradmarket.network.clocked import HOST_NAMED, ClockedTransport
from gradmarket.network.environment import PORTS

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All IPv6 that is routed in public. Outside of it Python counts as global some addresses that lead inside:
`::10.0.0.1`, site-local fec0::/10, 64:ff9b:1::/48 (RFC 8215) and reserved ones."""

STORES: Final = "if it is your market's store, name its origin in GRADMARKET_WORKER_STORES"
DATA_SERVERS: Final = "if it is your own server of datasets, name its origin in GRADMARKET_WORKER_DATA_SERVERS"
REACH: Final = "if it is your own server, name its origin with --reach"
UNNAMED: Final = "if it is a market of your own, name it with --market"
HOOK_SERVERS: Final = "its operator may name that origin in GRADMARKET_WEBHOOK_SERVERS"
"""Remedies for an address that is not public: a market's own links lead to stores, a dataset's to servers."""
Resolve = Callable[[str, int], list[str]]
"""Returns all IP addresses of a host, given its name and port."""


@dataclass(frozen=True)
class NetworkPlace:
    """A checked link. `url` holds the checked IP address, so that no second DNS lookup can lead elsewhere."""

    url: httpx.URL
    host: str
    """The Host header and the name that TLS verifies."""
    link: str
    own: bool
    """Whether the link is on the market's own origin, in its path: other services of the host get no session."""


def resolve_host(host: str, port: int) -> list[str]:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DownloadFailed(f"{host} has no address: {error}") from error
    return [str(address[4][0]) for address in addresses]


def resolve_within(seconds: float, at_once: int = 16) -> Resolve:
    """Returns `resolve_host` with a time limit, which the system's lacks: the result of a late look-up is discarded.

    At most `at_once` look-ups run together. The returned function raises DownloadFailed if no address comes in time.
    """
    free = threading.BoundedSemaphore(at_once)

    def look_up(host: str, port: int) -> list[str]:
        found: Future[list[str]] = Future()

        def ask() -> None:
            try:
                found.set_result(resolve_host(host, port))
            except (DownloadFailed, ValueError, OverflowError) as error:
                found.set_exception(error)
            finally:
                free.release()

        until = time.monotonic() + seconds
        late = DownloadFailed(f"{host} has no address within {seconds:g} seconds")
        if not free.acquire(timeout=seconds):
            raise late
        threading.Thread(target=ask, name="look-up", daemon=True).start()
        try:
            return found.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise late from None

    return look_up


class PublicOnly(ClockedTransport):
    """Sends requests to public addresses only, checked per request; for markets that the owner did not name.

    The origins in `allowed` may have any address; a refusal ends with `remedy`.
    """

    def __init__(
        self, look_up: Resolve = resolve_host, allowed: frozenset[str] = frozenset(), remedy: str = UNNAMED
    ) -> None:
        super().__init__()
        self._look_up, self._allowed, self._remedy = look_up, allowed, remedy

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.ConnectError where `place` raises DownloadRefused or DownloadFailed."""
        try:
            checked = check_link_target(
                str(request.url), "", self._look_up, own=False, allowed=self._allowed, remedy=self._remedy
            )
        except (DownloadRefused, DownloadFailed) as error:
            raise httpx.ConnectError(str(error), request=request) from error
        request.extensions = {**request.extensions, HOST_NAMED: request.url.host}
        request.url = checked.url
        return super().handle_request(request)


def check_link_target(
    link: str,
    origin: str,
    look_up: Resolve = resolve_host,
    own: bool = True,
    allowed: frozenset[str] = frozenset(),
    named: bool = True,
    remedy: str = STORES,
) -> NetworkPlace:
    """Returns where to fetch `link` from; it may be relative to the market's `origin`, and keeps the path in that.

    Links within the market's own origin and path may have any address if the worker's owner `named` the market, but not
    after a redirect from elsewhere (`own` is False then). The origins in `allowed`, which the owner named too, may have
    any address; pass a store's only if the market itself gives the link, not if a job's dataset gives it. Any other
    host must have public addresses only. Raises DownloadRefused for schemes other than http and https, for credentials
    in the link, and for addresses that are not public (private, loopback, link-local): then with `remedy`.
    """
    below = link.startswith("/") and not link.startswith("//")
    try:
        url = httpx.URL(origin + link if below else urljoin(origin + "/", link))
        _ = url.host  # decodes it
    except (httpx.InvalidURL, ValueError) as error:
        raise DownloadRefused(f"{link[:200]!r} is no address: {error}") from error
    if url.scheme not in PORTS or not url.host:
        raise DownloadRefused(f"{link[:200]!r} is neither http nor https")
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise DownloadRefused(f"{link[:200]!r} names a port that no server has")
    if url.userinfo:
        raise DownloadRefused("the link carries credentials")
    # Whether the service's path has the URL's, as the most lenient of servers would read both
    service = httpx.URL(origin)
    home = own and (
        _parse_origin(url) == _parse_origin(service)
        and f"{_normalize_path(url)}/".startswith(f"{_normalize_path(service)}/")
    )
    if home and named:
        return NetworkPlace(url, url.netloc.decode(), str(url), True)
    if _parse_origin(url) in {_parse_origin(httpx.URL(named)) for named in allowed}:
        return NetworkPlace(url, url.netloc.decode(), str(url), False)
    addresses = look_up(url.host, url.port or PORTS[url.scheme])
    for address in addresses:
        if not is_public(address):
            raise DownloadRefused(f"{url.host} is {address}, which is not a public address; {remedy}")
    if not addresses:
        raise DownloadFailed(f"{url.host} has no address")
    return NetworkPlace(url.copy_with(host=addresses[0]), url.netloc.decode(), str(url), home)


def server_origin(text: str) -> str:
    """Parses an origin; raises ValueError unless it is like http://nas.example:9000."""
    try:
        url = urlsplit(text)
        bare = not (url.path.strip("/") or url.query or url.username)
        sound = url.scheme in PORTS and bool(url.hostname) and (url.port or 0) >= 0 and bare
    except ValueError:
        sound = False
    if not sound:
        raise ValueError(f"{text[:200]!r} is not the origin of a server: write it like http://nas.example:9000")
    return text


def _parse_origin(url: httpx.URL) -> tuple[str, str, int]:
    return (url.scheme, url.host, url.port or PORTS.get(url.scheme, 0))


def _normalize_path(url: httpx.URL) -> str:
    """Returns the path with escapes decoded, however often they were encoded, and dot segments resolved."""
    path = url.path
    while (decoded := unquote(path)) != path:
        path = decoded
    return normpath("/" + path.replace("\\", "/").lstrip("/")).rstrip("/")


def is_public(address: str) -> bool:
    """Returns whether an IP address, and any IPv4 address that it embeds (mapped, 6to4, Teredo, NAT64), is global."""
    try:
        parsed = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if not isinstance(parsed, ipaddress.IPv6Address):
        return _is_global_address(parsed)
    embedded = [parsed.ipv4_mapped, parsed.sixtofour, *(parsed.teredo or ())]
    if parsed in _NAT64:
        embedded.append(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF))
    routed = parsed.is_global and (parsed in _UNICAST or parsed in _NAT64)
    return routed and all(_is_global_address(ipv4) for ipv4 in embedded if ipv4 is not None)


def _is_global_address(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not address.is_multicast
