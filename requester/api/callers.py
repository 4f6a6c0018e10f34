"""Finds the address a request comes from, for limits and separation; only named proxies may forward addresses."""

import ipaddress
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def resolve_caller(scope: Scope, trusted: frozenset[Network]) -> str:
    """Returns the caller's address: the last one in X-Forwarded-For that is not a trusted proxy's.

    The header is read from its end: the caller's own part, which stands before the proxies', is never used.
    """
    client = scope.get("client")
    host = unmap_ipv4(client[0]) if client else ""
    hops = [hop.strip() for value in _list_header_values(scope, b"x-forwarded-for") for hop in value.split(",")]
    while hops and is_in_networks(host, trusted):
        host = unmap_ipv4(hops.pop())
    return host


@lru_cache(maxsize=4096)
def unmap_ipv4(host: str) -> str:
    """Returns the IPv4 address that an IPv6 one maps (a socket of both families has such), or the host unchanged."""
    try:
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


def through_proxy(scope: Scope, trusted: frozenset[Network]) -> bool:
    """Returns whether a trusted proxy passed the request on; a client beside it has its address, but not its header."""
    return is_proxy(scope, trusted) and any(_list_header_values(scope, b"x-forwarded-for"))


def is_proxy(scope: Scope, trusted: frozenset[Network]) -> bool:
    client = scope.get("client")
    return bool(client and is_in_networks(unmap_ipv4(client[0]), trusted))


def parse_bearer_token(scope: Scope) -> str | None:
    """Returns the token of `Authorization: Bearer`, unchecked; None without one."""
    sent = next(iter(_list_header_values(scope, b"authorization")), "")
    scheme, _, token = sent.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _list_header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


@lru_cache(maxsize=4096)
def is_in_networks(host: str, networks: frozenset[Network]) -> bool:
    """Returns whether the address lies in one of the networks; False if `host` is no address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


def network_of(host: str) -> str | None:
    """Returns the prefix that separation compares, /24 (IPv4) or /48 (IPv6); None for loopback or no address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_loopback:
        return None
    return str(ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False))


FIRST_SWEEP = 4096


@dataclass(frozen=True, slots=True)
class Rate:
    """Allows `per_s` requests a second in the long run, and `burst` at once."""

    per_s: float
    burst: float


class Buckets:
    """One bucket for each name; full buckets are deleted, so that memory grows only with recent callers."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str | bytes, tuple[float, float]] = {}
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str | bytes, price: float = 1.0) -> float:
        """Takes `price` requests out of the bucket, at most a full one.

        Returns zero or, if too few are left, the seconds until enough are; nothing is taken then.
        """
        price = min(price, self._rate.burst)
        now = self._clock()
        level, at = self._buckets.get(name, (self._rate.burst, now))
        level = min(self._rate.burst, level + (now - at) * self._rate.per_s)
        if level < price:
            return (price - level) / self._rate.per_s
        if len(self._buckets) >= self._sweep_at:
            self._forget_full_buckets(now)
        self._buckets[name] = (level - price, now)
        return 0.0

    def _forget_full_buckets(self, now: float) -> None:
        full_after = self._rate.burst / self._rate.per_s
        self._buckets = {name: entry for name, entry in self._buckets.items() if now - entry[1] < full_after}
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._buckets))


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the Retry-After header (RFC 9110, 10.2.3), in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
