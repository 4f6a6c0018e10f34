"""Too frequent requests get a time to come again; waiting polls and clients behind a proxy are not limited by it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from contracts import deployment as deployments
from requester.api.callers import (
    FIRST_SWEEP,
    Buckets,
    Rate,
    network_of,
    resolve_caller,
)
from requester.features.rate_limits import refusal_delay
from requester.features.slow_clients import (
    SITE,
    ConnectionLimits,
    Connections,
    compute_subnet,
    find_site_network,
)
from requester.settings import RequesterSettings
from tests.api.api_service import serving
from tests.kit.clock import Clock
from tests.lanes import FULL

POLL = {"determinism_class": "cpu", "capacity": 0, "wait_s": 0}
LIMITS: dict[str, Any] = {
    "unlimited": frozenset(),
    "trusted_proxies": frozenset(),
    "address_rate": 0.01,
    "address_burst": 20,
    "token_rate": 0.01,
    "token_burst": 5,
    "stranger_rate": 0.01,
    "stranger_burst": 1000,
    "refused_s": 0.0,
    "wallet_rate": 0.01,
    "wallet_burst": 4,
}


@pytest.fixture
def limited(anvil, deployment, tmp_path):  # type: ignore[no-untyped-def]
    def settings(**changed: Any) -> RequesterSettings:
        deployments.write_deployment(deployment, tmp_path / "deployment.json")
        return RequesterSettings(data=tmp_path, rpc=anvil.url, **(LIMITS | changed))

    return settings


def statuses(client: httpx.Client, times: int, **options: Any) -> list[int]:
    return [client.get("/v1/health", **options).status_code for _ in range(times)]


def test_one_address_is_limited_and_gets_a_retry_after(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(address_rate=0.05)) as service:
        assert statuses(service.anyone, 20) == [200] * 20
        refused = service.anyone.get("/v1/health")
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert "one address" in refused.json()["detail"]


def test_nobody_escapes_by_writing_forwarded_addresses(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited()) as service:
        forged = [{"X-Forwarded-For": f"10.0.0.{n}", "Forwarded": f"for=10.0.0.{n}"} for n in range(21)]
        found = [service.anyone.get("/v1/health", headers=headers).status_code for headers in forged]
        assert found == [200] * 20 + [429]


def test_behind_a_trusted_proxy_each_has_a_limit_of_its_own(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(trusted_proxies=frozenset({ip_network("127.0.0.0/8")}))) as service:
        first, second = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.1, 192.0.2.2"}
        assert statuses(service.anyone, 21, headers=first) == [200] * 20 + [429]
        assert statuses(service.anyone, 1, headers=second) == [200]


def test_a_customer_with_65536_networks_is_limited_too(limited) -> None:  # type: ignore[no-untyped-def]
    def named(number: int, site: int = 1) -> dict[str, str]:
        return {"X-Forwarded-For": f"2001:db8:{site}:{number:x}::1"}

    with serving(limited(trusted_proxies={ip_network("127.0.0.1/32")}, address_burst=4, address_rate=1e-4)) as service:
        answers = [service.anyone.get("/v1/health", headers=named(n)).status_code for n in range(4 * SITE + 1)]
        assert answers == [200] * (4 * SITE) + [429]
        assert statuses(service.anyone, 1, headers=named(1, site=2)) == [200], "another customer's"


class Wire:
    """A connection's transport, of which the peer alone is asked."""

    def __init__(self, host: str) -> None:
        self.peer = (host, 1)

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return self.peer


def test_a_connection_is_found_by_its_peer_until_it_leaves() -> None:
    """A port is used again before the connection that had it has left."""

    async def reuse() -> None:
        all_ = Connections(ConnectionLimits(60, 60, 2, frozenset()))
        scope: dict[str, Any] = {"type": "http", "client": ("192.0.2.1", 1)}
        first = all_.open_connection(Wire("192.0.2.1"))  # type: ignore[arg-type]
        assert first is not None
        assert all_.of(scope) is first
        second = all_.open_connection(Wire("192.0.2.1"))  # type: ignore[arg-type]
        all_.leave(first)
        assert second is not None
        assert all_.of(scope) is second
        all_.leave(second)
        assert all_.of(scope) is None

    asyncio.run(reuse())


def test_a_customers_connections_are_counted_together() -> None:
    async def count() -> list[bool]:
        all_ = Connections(ConnectionLimits(60, 60, 2, frozenset()))
        entered: list[Any] = [all_.open_connection(Wire(f"2001:db8:1:{n:x}::1")) for n in range(2 * SITE + 1)]  # type: ignore[arg-type]
        all_.leave(entered[0])
        entered.append(all_.open_connection(Wire("2001:db8:1:ff::1")))  # type: ignore[arg-type]
        for each in filter(None, entered[1:]):
            all_.leave(each)
        assert not all_._open
        return [each is not None for each in entered]

    assert asyncio.run(count()) == [True] * (2 * SITE) + [False, True]


def test_one_token_is_limited_apart_from_its_address(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(address_burst=1000)) as service:
        assert statuses(service.requester, 6) == [200] * 5 + [429]
        assert statuses(service.anyone, 6) == [200] * 6


def test_one_wallet_is_limited_whatever_token_it_sends(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(address_burst=1000, token_burst=1000)) as service:
        account = Account.create()
        tokens = [service.knock(account, service.siwe(account)).json()["token"] for _ in range(5)]
        answers = [service.client(token).post("/v1/work/poll", json=POLL) for token in tokens]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429]
        assert "one wallet" in answers[-1].json()["detail"]
        _, other = service.worker()
        assert other.post("/v1/work/poll", json=POLL).status_code == 200


@FULL
def test_a_poll_that_waits_counts_once(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(address_burst=1000, wallet_burst=2)) as service:
        _, worker = service.worker()
        waited = worker.post("/v1/work/poll", json={**POLL, "capacity": 1, "wait_s": 2})
        assert waited.status_code == 200
        assert [worker.post("/v1/work/poll", json=POLL).status_code for _ in range(2)] == [200, 429]


def test_the_refused_are_counted(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited()) as service:
        statuses(service.anyone, 23)
        value = service.context.meters.registry.get_sample_value("gradmarket_rate_limited_total", {"by": "address"})
        assert value == 3


@given(st.lists(st.floats(0, 5), min_size=1, max_size=200), st.integers(1, 10), st.integers(1, 10))
def test_in_any_span_at_most_burst_and_rate_times_it_pass(pauses: list[float], per_s: int, burst: int) -> None:
    clock = Clock()
    buckets, passed = Buckets(Rate(per_s, burst), clock), 0
    for pause in pauses:
        clock.now += pause
        passed += buckets.take("one") == 0.0
    assert passed <= burst + per_s * clock.now + 1e-6


@given(st.lists(st.floats(0, 2), min_size=1, max_size=100), st.integers(1, 10), st.integers(1, 10))
def test_a_request_after_its_bucket_s_wait_passes(pauses: list[float], per_s: int, burst: int) -> None:
    clock = Clock()
    buckets = Buckets(Rate(per_s, burst), clock)
    for pause in pauses:
        clock.now += pause
        wait = buckets.take("one")
        if wait > 0:
            clock.now += wait + 1e-6  # a day of the clock in seconds has no smaller digits
            assert buckets.take("one") == 0.0


def test_many_names_leave_no_memory_behind() -> None:
    clock = Clock()
    buckets = Buckets(Rate(10, 10), clock)
    for number in range(20 * FIRST_SWEEP):
        clock.now += 0.001
        buckets.take(str(number))
    assert len(buckets) <= 2 * FIRST_SWEEP


def scope(client: str, *forwarded: str) -> dict[str, Any]:
    return {"client": (client, 1), "headers": [(b"x-forwarded-for", value.encode()) for value in forwarded]}


@pytest.mark.parametrize(
    ("heard", "trusted", "found"),
    [
        (scope("192.0.2.9", "10.1.1.1"), (), "192.0.2.9"),
        (scope("192.0.2.9", "10.1.1.1"), ("192.0.2.9",), "10.1.1.1"),
        (scope("192.0.2.9", "forged, 10.1.1.1"), ("192.0.2.9",), "10.1.1.1"),
        (scope("192.0.2.9", "forged", "10.1.1.1"), ("192.0.2.9",), "10.1.1.1"),
        (scope("192.0.2.9", "10.1.1.1, 192.0.2.8"), ("192.0.2.0/24",), "10.1.1.1"),
        (scope("192.0.2.9", "192.0.2.7, 192.0.2.8"), ("192.0.2.0/24",), "192.0.2.7"),
        (scope("2001:db8::1", "2001:db8::2"), ("2001:db8::1",), "2001:db8::2"),
        (scope("192.0.2.9"), ("192.0.2.9",), "192.0.2.9"),
    ],
)
def test_the_nearest_address_that_no_trusted_proxy_has(heard: Any, trusted: tuple[str, ...], found: str) -> None:
    assert resolve_caller(heard, frozenset(map(ip_network, trusted))) == found


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.9", "192.0.2.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("127.0.0.1", None),
        ("::1", None),
        ("unknown", None),
    ],
)
def test_separate_networks(host: str, network: str | None) -> None:
    assert network_of(host) == network


@given(st.floats(0, 60), st.integers(1, 10_000))
def test_a_refusal_is_delayed_the_longer_the_more_wait_up_to_five_times(base: float, waiting: int) -> None:
    assert base <= refusal_delay(base, waiting) <= refusal_delay(base, waiting + 1) <= 5 * base
    assert refusal_delay(base, 1) == base
    assert refusal_delay(base, 256) == 5 * base


def test_simultaneous_refusals_are_all_answered(limited) -> None:  # type: ignore[no-untyped-def]
    with serving(limited(address_burst=1, refused_s=0.01)) as service, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: service.anyone.get("/v1/health").status_code, range(40)))
    assert sorted(answers) == [200] + [429] * 39


@pytest.mark.parametrize(
    ("host", "subnet", "site"),
    [
        ("2001:db8:0:ffff:1::2", "2001:db8:0:ffff::/64", "2001:db8::/48"),
        ("2001:db8:1:8000::1", "2001:db8:1:8000::/64", "2001:db8:1::/48"),
        ("192.0.2.1", "192.0.2.1", None),
        ("a name", "a name", None),
    ],
)
def test_a_customers_networks_are_of_one_site(host: str, subnet: str, site: str | None) -> None:
    assert compute_subnet(host) == subnet
    assert find_site_network(subnet) == site
