"""Where a request comes from, for limits and separation: forwarded addresses are believed from named proxies only."""

import ipaddress
from functools import lru_cache
from typing import Final

from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""Headers that proxies add."""


def caller(scope: Scope, trusted: frozenset[Network]) -> str:
    """The caller's address: the last one in X-Forwarded-For that no trusted proxy has, read from the near end.

    What the caller itself wrote into the header stands before what the
    nearest proxy added, and is never reached.
    """
    client = scope.get("client")
    host: str = client[0] if client else ""
    hops = [hop.strip() for value in _values(scope, b"x-forwarded-for") for hop in value.split(",")]
    while hops and among(host, trusted):
        host = hops.pop()
    return host


def speaks_for_others(scope: Scope, trusted: frozenset[Network]) -> bool:
    """Whether who is connected passes on what others ask, as its headers say, and is no trusted proxy."""
    client = scope.get("client")
    return not (client and among(client[0], trusted)) and any(name in FORWARDED for name, _ in scope["headers"])


def bearer(scope: Scope) -> str | None:
    """The token of `Authorization: Bearer`, whoever's it is."""
    sent = next(iter(_values(scope, b"authorization")), "")
    scheme, _, token = sent.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def subnet(host: str) -> str:
    """What counts as one address: an IPv6 subscriber has 2^64 of them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


@lru_cache(maxsize=4096)
def among(host: str, networks: frozenset[Network]) -> bool:
    """Whether the address lies in one of the networks; what is no address lies in none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


def network_of(host: str) -> str | None:
    """The /24 or /48 prefix that separation tells apart; none for loopback and what is no address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_loopback:
        return None
    return str(ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False))
