"""The address under which a service is reached: IPv6, every address at once, and a path below another server's."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import deployment as deployments
from contracts.deployment import Deployment
from contracts.local import LocalChain
from gradmarket.client import RequesterClient
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Refused
from gradmarket.market.terms import Digest
from requester import dataset
from requester.api.callers import network_of, unmap_ipv4
from requester.features.slow_clients import compute_subnet
from requester.serving import open_listener, own_url
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from worker.protocol.client import Credentials, MarketClient
from worker.wallet import Wallet


def settings(anvil: LocalChain, deployment: Deployment, data: Path, host: str) -> RequesterSettings:
    deployments.write_deployment(deployment, data / "deployment.json")
    return RequesterSettings(data=data, rpc=anvil.url, host=host)


def signed_in(url: str, chain_id: int) -> MarketClient:
    key = PrivateKey(bytes(31) + b"\7")
    wallet = Wallet(key, Path("key"))
    market = MarketClient(url, lambda _seconds: False)
    market.identify(Credentials(wallet, wallet.address, chain_id))
    return market


@pytest.fixture(scope="module", params=[("::1", ""), ("::", "/a/market")], ids="{0}".format)
def placed(
    request: pytest.FixtureRequest,
    anvil: LocalChain,
    deployment: Deployment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    host, path = request.param
    with serving(settings(anvil, deployment, tmp_path_factory.mktemp("placed"), host), path) as service:
        yield service


def test_a_worker_signs_in_and_downloads_there(placed: Service, tmp_path: Path) -> None:
    digest = RequesterClient(placed.url, placed.token).upload(b"rows")
    market = signed_in(placed.url, placed.context.domain.chain_id)
    assert market.bearer()
    with closing(Fetcher(Cache(tmp_path, 10**6), placed.url, 10**6, bearer=market.bearer)) as fetcher:
        assert fetcher.blob(Digest(digest)) == b"rows"
    market.close()


def test_every_link_of_its_pages_leads_there(placed: Service) -> None:
    origin, path = re.fullmatch(r"(http://[^/]+)(.*)", placed.url).groups()  # type: ignore[union-attr]
    for page in ("/", "/submit", "/operator", "/errors", "/jobs/nothing"):
        links = re.findall(r'(?:href|src|hx-get)="(/[^"]*)"', placed.anyone.get(f"{placed.url}{page}").text)
        assert links
        for link in links:
            assert link.startswith(f"{path}/")
            if "/assets/" in link:
                assert placed.anyone.get(origin + link).status_code == 200


def test_a_proxy_that_takes_the_path_off_finds_the_same(placed: Service) -> None:
    origin = re.match(r"http://[^/]+", placed.url)[0]  # type: ignore[index]
    assert placed.anyone.get(f"{origin}/v1/health").status_code == 200
    assert placed.anyone.get(f"{placed.url}/v1/health").status_code == 200


def test_every_address_is_one_for_both_families() -> None:
    with open_listener("::", 0) as door:
        door.listen()
        port = door.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()
    assert own_url("::", 8700) == "http://[::1]:8700"
    assert own_url("0.0.0.0", 8700) == "http://127.0.0.1:8700"
    assert own_url("[fd07::1]", 8700) == own_url("fd07::1", 8700) == "http://[fd07::1]:8700"
    assert own_url("market.lan", 8700) == "http://market.lan:8700"


def test_an_address_of_ipv4_is_the_same_on_a_socket_of_both_families() -> None:
    """Or all of them are one /64, and share one limit."""
    assert unmap_ipv4("::ffff:203.0.113.9") == "203.0.113.9"
    assert unmap_ipv4("2001:db8::9") == "2001:db8::9"
    assert unmap_ipv4("") == ""
    assert compute_subnet(unmap_ipv4("::ffff:203.0.113.9")) != compute_subnet(unmap_ipv4("::ffff:203.0.113.10"))
    assert network_of(unmap_ipv4("::ffff:127.0.0.1")) is None


def test_a_subscriber_of_ipv6_is_one_address_and_its_neighbour_another() -> None:
    assert (
        compute_subnet("2001:db8:0:1::9") == compute_subnet("2001:db8:0:1:ffff:ffff:ffff:ffff") == "2001:db8:0:1::/64"
    )
    assert compute_subnet("2001:db8:0:1:8000::") == compute_subnet("2001:db8:0:1:7fff::"), (
        "its last 64 bits are its own"
    )
    assert compute_subnet("2001:db8:0:2::9") != compute_subnet("2001:db8:0:1::9")


@pytest.mark.parametrize("host", ["256.1.1.1", "nothing.invalid", "fd07::9999", "a" * 70])
def test_a_host_that_is_none_of_this_machine_s_is_refused_in_a_sentence(host: str) -> None:
    with pytest.raises(Refused, match="cannot listen there") as refused:
        open_listener(host, 0)
    assert "--host" in refused.value.remedy


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("/v1/blobs/x", "/v1/blobs/x"),
        ("v1/blobs/x", "/v1/blobs/x"),
        ("https://market.example/below/v1/blobs/x", "/v1/blobs/x"),
        ("https://other.example/below/v1/blobs/x", "https://other.example/below/v1/blobs/x"),
    ],
)
def test_a_link_to_a_blob_of_its_own_is_recognised_below_a_path(link: str, path: str) -> None:
    assert dataset.own_path(link, "https://market.example/below") == path
