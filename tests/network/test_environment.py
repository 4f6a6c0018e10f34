"""Which proxy leads to a host, and whose certificates are believed: the same for every client."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from contracts.rpc import call_json_rpc, connect_to_node
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import CertificateRefused, ServiceUnreachable
from gradmarket.client.transport import Patience, ServiceTransport
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Refused
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.network.addresses import PublicOnly
from gradmarket.network.chain_errors import ChainUnreachable
from gradmarket.network.clocked import UntrustedCertificate
from gradmarket.network.environment import is_loopback, proxy_of
from requester.features.chain_door.node_door import PATH, ChainDoor
from tests.network.servers import certified, serving, tunnelling
from worker.protocol.client import MarketClient

VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *(
            (name, True)
            for name in ("localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]")
        ),
        *((name, True) for name in ("::ffff:127.0.0.1", "0.0.0.0", "::")),
        *((name, False) for name in ("localhost.example", "128.0.0.1", "10.0.0.1", "::2", "fe80::1%eth0", "")),
    ],
)
def test_loopback(host: str, here: bool) -> None:
    assert is_loopback(host) is here


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_is_never_asked_through_a_proxy(environment: pytest.MonkeyPatch, host: str) -> None:
    environment.setenv("HTTP_PROXY", PROXY)
    environment.setenv("ALL_PROXY", PROXY)
    assert proxy_of("http", host, 8700) is None
    assert proxy_of("http", "market.example", 8700) == PROXY


@pytest.mark.parametrize(
    ("left_out", "host", "direct"),
    [
        ("*", "a.example", True),
        ("example", "a.example", True),
        (".example", "a.example", True),
        ("*.example", "a.example", True),
        ("a.example:8700", "a.example", True),
        ("a.example:8701", "a.example", False),
        ("ample", "a.example", False),
        ("b.example, c.example a.example", "a.example", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "a.example", False),
        ("fd07:b51a:cc66::/64", "fd07:b51a:cc66::5", True),
        ("fd07:b51a:cc66::/64", "fd07:b51a:cc67::5", False),
        ("fd07:b51a:cc66::/64", "a.example", False),
        ("[fd07::1]:8700", "fd07::1", True),
        ("[fd07::1]:80", "fd07::1", False),
        ("fd07::1", "[fd07::1]", True),
        ("localhost,127.0.0.1,::1,,300.1.1.1/99,[", "a.example", False),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(
    environment: pytest.MonkeyPatch, left_out: str, host: str, direct: bool
) -> None:
    environment.setenv("HTTP_PROXY", PROXY)
    environment.setenv("NO_PROXY", left_out)
    assert (proxy_of("http", host, 8700) is None) is direct


def test_small_letters_come_first_and_empty_ones_take_a_proxy_away(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "large.example:1")
    assert proxy_of("https", "a.example") == "http://large.example:1"
    environment.setenv("https_proxy", "https://small.example:2")
    assert proxy_of("https", "a.example") == "https://small.example:2"
    environment.setenv("https_proxy", "")
    assert proxy_of("https", "a.example") is None
    assert proxy_of("http", "a.example") is None


@pytest.mark.parametrize("named", ["socks5://me:secret@proxy.example:1080", "http://", "http://[::1", "ftp://a"])
def test_a_proxy_that_is_none_is_refused_in_a_sentence_without_its_secret(
    environment: pytest.MonkeyPatch, named: str
) -> None:
    environment.setenv("ALL_PROXY", named)
    with pytest.raises(Refused, match="is not an HTTP proxy") as refused:
        proxy_of("https", "a.example")
    assert "secret" not in str(refused.value)
    assert "http://proxy.example" in refused.value.remedy


@pytest.fixture
def proxied(environment: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The targets that a proxy is asked for; it answers for named hosts itself, as if it had reached them."""
    asked: list[str] = []

    def answer(method: str, target: str, body: bytes) -> tuple[int, bytes]:
        asked.append(f"{method} {target}")
        if method == "CONNECT":
            return 403, b""
        if target.endswith("/rpc"):
            return 200, json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": "0x1"}).encode()
        return 200, b"bytes"

    with serving(answer) as url:
        environment.setenv("HTTP_PROXY", url)
        environment.setenv("HTTPS_PROXY", url)
        environment.setenv("NO_PROXY", "direct.invalid,fd07:b51a:cc66::/64")
        yield asked


def ask_chain_door(node: str) -> object:
    """Asks the node as the service's door to its chain does for strangers."""
    with TestClient(ChainDoor(Starlette(), node)) as client:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
        return client.post(PATH, json=asked).json().get("result")


def test_every_client_asks_for_named_hosts_through_the_proxy(proxied: list[str], tmp_path: Path) -> None:
    for transport in (
        RequesterClient("http://market.example")._transport,
        MarketClient("http://market.example")._transport,
    ):
        assert transport.send("GET", "/v1/ready") == (200, b"bytes")
    with closing(Fetcher(Cache(tmp_path, 10**6), "http://market.example/below", 10**6)) as fetcher:
        assert fetcher.blob(Digest(blob_digest(b"bytes"))) == b"bytes"
    assert call_json_rpc(connect_to_node("http://node.example/rpc"), "eth_chainId") == "0x1"
    assert ask_chain_door("http://node.example/rpc") == "0x1"
    assert proxied == [
        "GET http://market.example/v1/ready",
        "GET http://market.example/v1/ready",
        f"GET http://market.example/below/v1/blobs/{blob_digest(b'bytes')}",
        "POST http://node.example/rpc",
        "POST http://node.example/rpc",
    ]


def service_and_node(_method: str, _target: str, body: bytes) -> tuple[int, bytes]:
    """Answers as either: a node is asked by a body."""
    return 200, json.dumps({"id": json.loads(body)["id"], "result": "0x2"}).encode() if body else b"bytes"


def ask_by_every_client(url: str, cache: Path) -> None:
    assert RequesterClient(url)._transport.send("GET", "/v1/ready") == (200, b"bytes")
    assert MarketClient(url)._transport.send("GET", "/v1/ready") == (200, b"bytes")
    with closing(Fetcher(Cache(cache, 10**6), url, 10**6)) as fetcher:
        assert fetcher.blob(Digest(blob_digest(b"bytes"))) == b"bytes"
    assert call_json_rpc(connect_to_node(url), "eth_chainId") == "0x2"
    assert ask_chain_door(url) == "0x2"


def test_no_client_asks_for_loopback_through_it(proxied: list[str], tmp_path: Path) -> None:
    with serving(service_and_node) as url:
        ask_by_every_client(url, tmp_path)
    assert proxied == []


WATCHED: Final = """
import sys
from contracts.rpc import call_json_rpc, connect_to_node

written = []
sys.addaudithook(lambda event, values: written.append(values) if event in ("os.putenv", "os.unsetenv") else None)
print(call_json_rpc(connect_to_node(sys.argv[1]), "eth_chainId"), written)
"""
"""A hook of audits stays for ever, so the process is a child."""


def test_a_call_to_a_node_writes_nothing_into_the_environment_of_all_threads() -> None:
    with serving(service_and_node) as url:
        done = subprocess.run([sys.executable, "-c", WATCHED, url], capture_output=True, text=True, check=True)
    assert done.stdout == "0x2 []\n"


def test_a_stranger_s_link_goes_through_it_to_the_checked_address(proxied: list[str]) -> None:
    with httpx.Client(transport=PublicOnly(lambda _host, _port: ["93.184.216.34"])) as http:
        assert http.get("http://stranger.example/a").content == b"bytes"
        with pytest.raises(httpx.ProxyError, match=r"through the proxy .*403"):
            http.get("https://stranger.example/a")
    with (
        httpx.Client(transport=PublicOnly(lambda _host, _port: ["10.0.0.1"])) as http,
        pytest.raises(httpx.ConnectError, match="not a public address"),
    ):
        http.get("http://stranger.example/a")
    assert proxied == ["GET http://93.184.216.34/a", "CONNECT 93.184.216.34:443"]


@pytest.mark.parametrize("host", ["stranger.example", "other.example"])
def test_a_tunnel_to_a_checked_address_is_verified_by_the_link_s_host(
    environment: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    certificate = certified(tmp_path, "stranger.example")
    environment.setenv("SSL_CERT_FILE", str(certificate))
    with (
        serving(lambda *_asked: (200, b"bytes"), certificate) as url,
        tunnelling(url) as proxy,
        httpx.Client(transport=PublicOnly(lambda _host, _port: ["93.184.216.34"])) as http,
    ):
        environment.setenv("HTTPS_PROXY", proxy)
        if host == "stranger.example":
            assert http.get(f"https://{host}/").content == b"bytes"
        else:
            with pytest.raises(UntrustedCertificate, match="Hostname mismatch"):
                http.get(f"https://{host}/")


def test_a_host_that_has_no_name_is_not_reached_and_no_fault_of_ours() -> None:
    with pytest.raises(ServiceUnreachable, match=r"a\.\.example is no host's name"):
        RequesterClient("http://a..example").ready()


def test_a_proxy_that_is_down_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:1")
    with pytest.raises(ServiceUnreachable, match=r"through the proxy http://127\.0\.0\.1:1: ") as down:
        RequesterClient("http://market.example").ready()
    assert "secret" not in str(down.value)


@pytest.mark.parametrize("named", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_private_authority_is_believed_by_every_client(
    environment: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    certificate = certified(tmp_path)

    with serving(service_and_node, certificate) as url:
        environment.setenv(named, str(certificate))
        ask_by_every_client(url, tmp_path / "cache")


def test_an_untrusted_certificate_is_refused_at_once_with_the_remedy(tmp_path: Path) -> None:
    """A worker would try for ever; a certificate that was never trusted is no outage."""
    with serving(lambda *_asked: (200, b"bytes"), certified(tmp_path)) as url:
        with pytest.raises(Refused, match=r"the certificate of 127\.0\.0\.1 is not trusted: self-signed") as refused:
            MarketClient(url, pause=lambda _seconds: pytest.fail("it tries again")).facts()
        assert "SSL_CERT_FILE" in refused.value.remedy
        with pytest.raises(ChainUnreachable, match="certificate is not trusted") as unread:
            call_json_rpc(connect_to_node(url), "eth_chainId")
        assert "SSL_CERT_FILE" in unread.value.remedy


def test_a_certificate_that_stops_being_trusted_is_waited_for(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may be renewed at any moment: a worker with gradients in flight does not leave for it."""
    certificate, said = certified(tmp_path), list[Exception]()
    with serving(lambda *_asked: (200, b"bytes"), certificate) as url:
        patience = Patience(lambda _seconds: len(said) < 2, lambda _seconds: None, on_retry=said.append)
        environment.setenv("SSL_CERT_FILE", str(certificate))
        transport = ServiceTransport(url, patience)
        transport.send("GET", "/")
        transport._http._transport.close()  # type: ignore[attr-defined]
        transport._http._transport._pools.clear()  # type: ignore[attr-defined]
        environment.delenv("SSL_CERT_FILE")
        with pytest.raises(CertificateRefused):
            transport.send("GET", "/")
        assert len(said) == 2


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_unreadable_authorities_are_refused_by_their_file(
    environment: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    environment.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(Refused, match=r"authority\.pem") as refused:
        RequesterClient("https://127.0.0.1:1").ready()
    assert "PEM" in refused.value.remedy
    with pytest.raises(ServiceUnreachable):
        RequesterClient("http://127.0.0.1:1").ready()
