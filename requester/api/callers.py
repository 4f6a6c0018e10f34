"""Where a request comes from, for limits and separation: forwarded addresses are believed from named proxies only."""

import ipaddress
from functools import lru_cache

from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
