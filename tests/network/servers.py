"""Servers for the tests of the network: one with given answers, a proxy that makes tunnels, certificates."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[str, str, bytes], tuple[int, bytes]]
"""(method, target, body) -> (status, body)."""


@contextmanager
def serving(answer: Answer, certificate: Path | None = None) -> Iterator[str]:
    """Yields the address of a server that answers so; with TLS where it has a certificate (`certified`)."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            status, said = answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_DELETE = do_CONNECT = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def tunnelling(to: str) -> Iterator[str]:
    """Yields the address of a proxy whose tunnels all lead to the server at the address `to`."""
    place = urlsplit(to)

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            with socket.create_connection((place.hostname or "", place.port or 0)) as far:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_pour, args=(far, self.connection))
                back.start()
                _pour(self.connection, far)
                back.join()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def certified(folder: Path, name: str = "127.0.0.1") -> Path:
    """Writes a key and its own certificate for 127.0.0.1 and `name`; returns their file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName(name)])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    signed = made.add_extension(names, False).add_extension(constraints, True).sign(key, hashes.SHA256())
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "certificate.pem"
    path.write_bytes(key.private_bytes(*plain) + signed.public_bytes(serialization.Encoding.PEM))
    return path
