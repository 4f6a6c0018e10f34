"""nginx in front of a service, on loopback, from the sample configuration of docker/nginx.conf."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.patience import PATIENCE_S, wait_until
from tests.processes import free_port

SAMPLE = Path(__file__).parents[2] / "docker" / "nginx.conf"
INSIDE = "/inside/blobs/"


def program() -> str | None:
    """Debian puts it where only root's PATH leads."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Proxy:
    url: str
    tls: str
    certificate: Path


def replaced(text: str, pattern: str, by: str) -> str:
    """Every replacement must find its line: a sample that changes is not tested by half."""
    made, count = re.subn(pattern, lambda _: by, text, flags=re.MULTILINE)
    assert count, pattern
    return made


def configuration(
    folder: Path, service: httpx.URL, blobs: Path, ports: tuple[int, int], changed: dict[str, str]
) -> str:
    """The sample, with its places and, by `changed`, some of its figures replaced."""
    text = SAMPLE.read_text()
    for pattern, by in (
        (r"listen 8700;", f"listen 127.0.0.1:{ports[0]};"),
        (r"listen 8443 ssl;", f"listen 127.0.0.1:{ports[1]} ssl;"),
        (r"include /tmp/resolver.conf;", ""),
        (r"set \$service \S+;", f"set $service {service.host};"),
        (r"proxy_pass http://\$service:8700;", f"proxy_pass http://$service:{service.port};"),
        (r"(?<= )/tmp/", f"{folder}/"),
        (r"/run/secrets/", f"{folder}/"),
        (r"alias /blobs/;", f"alias {blobs}/;"),
        *changed.items(),
    ):
        text = replaced(text, pattern, by)
    return text


@contextmanager
def proxied(folder: Path, service: str, blobs: Path, changed: dict[str, str] | None = None) -> Iterator[Proxy]:
    """nginx before the service at this address, ended with the block. AssertionError if it does not start."""
    folder.mkdir()
    folder.chmod(0o755)
    ports = free_port(), free_port()
    _certify(folder)
    file = folder / "nginx.conf"
    file.write_text("daemon off;\n" + _user() + configuration(folder, httpx.URL(service), blobs, ports, changed or {}))
    name = program()
    assert name
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([name, "-e", "stderr", "-c", str(file)], stdout=log, stderr=log)
    try:
        wait_until(lambda: _listens(ports[0], process, folder / "log"))
        url, tls = (f"{scheme}://127.0.0.1:{port}" for scheme, port in zip(("http", "https"), ports, strict=True))
        yield Proxy(url, tls, folder / "tls_certificate")
    finally:
        process.terminate()
        process.wait()


def _user() -> str:
    """Its workers read the service's files, which are their owner's alone."""
    return "user root;\n" if os.geteuid() == 0 else ""


def _listens(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except OSError:
        return False
    return True


def _certify(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = made.add_extension(here, critical=False).sign(key, hashes.SHA256())
    (folder / "tls_certificate").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (folder / "tls_key").write_bytes(private)
