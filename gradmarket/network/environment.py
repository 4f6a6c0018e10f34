"""The environment's network settings: its proxies, and the authorities whose certificates are trusted.

Every client follows it: named hosts are reached through HTTP_PROXY, HTTPS_PROXY or ALL_PROXY unless NO_PROXY leaves
them out, and believed by SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE. Loopback is never asked through a proxy.
"""

import ipaddress
import os
import re
import ssl
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import httpx

from gradmarket.market.errors import Refused

AUTHORITIES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
"""The first that is set replaces the authorities that come with Python's certifi, as OpenSSL and curl have it."""
PORTS: Final = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Returns whether a host name or IP address, in brackets or not, is this machine itself: so are 0.0.0.0 and ::."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = _unmap_ipv4(ipaddress.ip_address(name.split("%")[0]))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_address(url: str) -> bool:
    """Returns whether a text is the address of an HTTP service: a scheme, a host, and a port that there can be."""
    try:
        parts = urlsplit(url)
        return parts.scheme in PORTS and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        return False


def path_of(url: str) -> str:
    """Returns the path in a service's address, without a slash at its end: empty where it is at the root."""
    return urlsplit(url).path.rstrip("/")


def proxy_of(scheme: str, host: str, port: int | None = None) -> str | None:
    """Returns the address of the proxy that leads to `host`, or None where it is reached directly.

    Raises Refused if the environment names one that is no HTTP proxy.
    """
    plain, port = host.strip("[]").rstrip(".").lower(), port or PORTS.get(scheme)
    left_out = re.split(r"[,\s]+", _read_variable("NO_PROXY"))
    if is_loopback(host) or any(_is_host_named(entry.lower(), plain, port) for entry in left_out if entry):
        return None
    for name in (f"{scheme.upper()}_PROXY", "ALL_PROXY"):
        if address := _read_variable(name):
            url = address if "://" in address else f"http://{address}"
            try:
                parts: SplitResult | None = urlsplit(url)
                sound = parts is not None and parts.scheme in PORTS and bool(parts.hostname) and (parts.port or 0) >= 0
            except ValueError:
                sound, parts = False, None
            if not sound:
                shown = proxy_without_secret(url) if parts else "something else"
                raise Refused(
                    f"{name} names {shown}, which is not an HTTP proxy", "write it like http://proxy.example:3128"
                )
            return url
    return None


def proxy_without_secret(proxy: str) -> str:
    """Returns a proxy's address as it may be shown, without the user and password in it."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def find_authorities() -> str | None:
    """Returns the file or folder of the trusted authorities; None for certifi's. Raises Refused where none is."""
    name = next((name for name in AUTHORITIES if os.environ.get(name)), None)
    if name is None:
        return None
    path = os.environ[name]
    if not Path(path).exists():
        raise Refused(
            f"{name} names {path}, which does not exist", f"name a file of certificates (PEM), or unset {name}"
        )
    return path


def build_ssl_context() -> ssl.SSLContext:
    """Returns the context that verifies servers by `authorities`; raises Refused where these cannot be read."""
    return _load_ssl_context(find_authorities())


@cache
def _load_ssl_context(path: str | None) -> ssl.SSLContext:
    if path is None:
        return httpx.create_ssl_context(trust_env=False)
    try:
        folder = Path(path).is_dir()
        return ssl.create_default_context(cafile=None if folder else path, capath=path if folder else None)
    except OSError as error:
        detail = f"{path} has no certificates that can be read: {error.strerror or error}"
        raise Refused(detail, f"name a file of certificates (PEM) in {AUTHORITIES[0]}") from error


def _read_variable(name: str) -> str:
    """Returns a variable's value; its name in small letters comes first, as curl has it."""
    return os.environ.get(name.lower(), os.environ.get(name, "")).strip()


def _is_host_named(entry: str, host: str, port: int | None) -> bool:
    """Returns whether NO_PROXY's entry has the host: by name, domain, address or range (IPv4, IPv6), a port or not."""
    if entry == "*":
        return True
    with_port = re.fullmatch(r"(\[[^]]*\]|[^:/]+):(\d+)", entry)
    if with_port and int(with_port[2]) != port:
        return False
    name = (with_port[1] if with_port else entry).replace("[", "").replace("]", "")
    try:
        address = _unmap_ipv4(ipaddress.ip_address(host.split("%")[0]))
    except ValueError:
        domain = name.removeprefix("*").removeprefix(".").rstrip(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))
    try:
        return address in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


def _unmap_ipv4(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns the IPv4 address that an IPv6 one maps, else the address itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
