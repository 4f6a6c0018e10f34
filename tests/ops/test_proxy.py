"""Slow clients and floods are played against the service alone and behind nginx as docker/nginx.conf has it."""

import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import count

import httpx
import pytest
import yaml
from blake3 import blake3

from contracts import deployment as deployments
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.lanes import FULL
from tests.ops.proxied import INSIDE, SAMPLE, Proxy, program, proxied
from tests.patience import PATIENCE_S, wait_for, wait_until
from tests.processes import drip, is_closed

pytestmark = pytest.mark.skipif(program() is None, reason="nginx is not here: apt-get install nginx-light")

BURST = 20
CONNECTIONS = 8
QUICK = {
    "client_header_timeout 10s": "client_header_timeout 2s",
    "client_body_timeout 30s": "client_body_timeout 2s",
    "send_timeout 30s": "send_timeout 2s",
    "limit_conn connections 256": f"limit_conn connections {CONNECTIONS}",
}
JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "rounds": 3,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}
SLOW_BODY = b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
addresses = (f"127.0.{number // 200 + 1}.{number % 200 + 1}" for number in count())
"""Each is somebody else's, with its own allowance."""


@pytest.fixture(scope="module")
def service(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data = tmp_path_factory.mktemp("proxied")
    deployments.write_deployment(deployment, data / "deployment.json")
    limits = {"header_s": 2.0, "silence_s": 2.0, "body_s": 2.0, "refused_s": 0.0, "address_connections": CONNECTIONS}
    strangers = {"stranger_rate": 0.01, "stranger_burst": BURST, "unlimited": frozenset()}
    trusted = {"trusted_proxies": frozenset({ip_network("127.0.0.1/32")}), "proxy_blobs": INSIDE}
    with serving(RequesterSettings(data=data, rpc=anvil.url, **limits, **strangers, **trusted)) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("nginx") / "own"
    with proxied(folder, service.url, service.context.settings.data / "blobs", QUICK) as made:
        yield made


@dataclass(frozen=True)
class Form:
    url: str

    def client(self, token: str | None = None, host: str | None = None) -> httpx.Client:
        """From an address of its own."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx.HTTPTransport(local_address=host or next(addresses))
        return httpx.Client(base_url=self.url, transport=transport, headers=headers, timeout=PATIENCE_S)

    @contextmanager
    def connected(self, host: str | None = None) -> Iterator[socket.socket]:
        url = httpx.URL(self.url)
        with socket.create_connection((url.host, url.port), PATIENCE_S, (host or next(addresses), 0)) as made:
            yield made


@pytest.fixture(params=["alone", pytest.param("behind nginx", marks=FULL)])
def form(request: pytest.FixtureRequest, service: Service, proxy: Proxy) -> Form:
    return Form(service.url if request.param == "alone" else proxy.url)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ", id="a header"),
        pytest.param(b"", id="nothing", marks=FULL),
    ],
)
def test_the_proxy_closes_a_connection_that_never_finishes_its_header(form: Form, first: bytes) -> None:
    with form.connected() as made:
        made.sendall(first)
        assert b" 200 " not in drip(made, first and b"a")


@FULL
def test_the_proxy_closes_a_stalled_body(form: Form) -> None:
    with form.connected() as made:
        made.sendall(SLOW_BODY)
        assert b" 200 " not in drip(made)


@FULL
def test_the_proxy_closes_a_dripping_body(form: Form) -> None:
    with form.connected() as made:
        made.sendall(SLOW_BODY)
        assert b" 200 " not in drip(made, b" ")


@FULL
def test_the_proxy_closes_an_unread_answer(form: Form, service: Service) -> None:
    data = bytes(32 << 20)
    digest = service.context.blobs.put(data)
    with form.connected() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        ask = f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n\r\n"
        made.sendall(ask.encode())
        wait_until(lambda: is_closed(made))
        assert len(drip(made)) < len(data)


def test_two_hundred_slow_clients_keep_nobody_waiting(form: Form) -> None:
    with ExitStack() as stack:
        for number in range(200):
            made = stack.enter_context(form.connected())
            made.sendall(b"GET / HTTP/1.1\r\nX-Slow: " if number % 2 else SLOW_BODY)
        with form.client() as honest:
            assert honest.get("/v1/health").status_code == 200


def test_an_address_holds_so_many_connections_and_no_more(form: Form) -> None:
    """One more is refused while they last; on a busy machine they may be closed before it comes."""
    wait_until(lambda: refused_beside_slow_ones(form, next(addresses)))


def refused_beside_slow_ones(form: Form, host: str) -> bool:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(form.connected(host)).sendall(SLOW_BODY)
        with form.client(host=host) as same, form.client() as other:
            assert other.get("/v1/health").status_code == 200
            try:
                return same.get("/v1/health").status_code == 429
            except httpx.TransportError:
                return True  # alone it closes the connection


@pytest.mark.parametrize("forged", [False, True])
def test_a_flood_of_one_address_is_refused_and_others_are_served(form: Form, forged: bool) -> None:
    with form.client() as flooder, form.client() as other:
        seen = Counter[int]()
        for number in range(3 * BURST):
            headers = {"X-Forwarded-For": f"10.0.0.{number}", "X-Real-IP": f"10.0.1.{number}"} if forged else {}
            seen[flooder.get("/v1/health", headers=headers).status_code] += 1
        assert seen == {200: BURST, 429: 2 * BURST}
        assert other.get("/v1/health").status_code == 200


def test_a_body_over_the_limit_is_refused(form: Form) -> None:
    with form.client() as client:
        assert client.post("/v1/jobs", content=bytes(2 << 20)).status_code == 413


def test_headers_of_any_size_are_not_taken(form: Form) -> None:
    with form.client() as client:
        try:
            assert client.get("/v1/health", headers={"X-Large": "a" * (1 << 20)}).status_code in (400, 431, 494)
        except httpx.TransportError:
            assert client.get("/v1/health").status_code == 200


@pytest.fixture(scope="module")
def blob(service: Service) -> tuple[str, bytes]:
    data = random.Random(5).randbytes((3 << 20) + 17)
    service.context.blobs.put(data)
    return "blake3:" + blake3(data).hexdigest(), data


def test_a_download_is_the_file_whole_and_by_range(form: Form, service: Service, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    with form.client(service.token) as client:
        whole = client.get(f"/v1/blobs/{digest}")
        assert (whole.status_code, whole.content) == (200, data)
        assert whole.headers["etag"] == f'"{digest}"'
        assert "immutable" in whole.headers["cache-control"]
        assert "x-accel-redirect" not in whole.headers
        rest = {"Range": "bytes=1000-", "If-Range": f'"{digest}"'}
        part = client.get(f"/v1/blobs/{digest}", headers=rest)
        assert (part.status_code, part.content) == (206, data[1000:])
        other = client.get(f"/v1/blobs/{digest}", headers={**rest, "If-Range": '"another"'})
        assert (other.status_code, other.content) == (200, data)
        assert client.head(f"/v1/blobs/{digest}").headers["content-length"] == str(len(data))
        assert client.get(f"/v1/blobs/blake3:{'0' * 64}").status_code == 404


def test_a_file_is_named_to_the_proxy_alone_and_only_for_its_readers(service: Service, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    alone = Form(service.url)
    with alone.client(service.token) as elsewhere, alone.client(service.token, "127.0.0.1") as proxy:
        direct = elsewhere.get(f"/v1/blobs/{digest}", headers={"X-Forwarded-For": "127.0.0.1"})
        assert ("x-accel-redirect" in direct.headers, direct.content) == (False, data)
        beside = proxy.get(f"/v1/blobs/{digest}")
        assert ("x-accel-redirect" in beside.headers, beside.content) == (False, data)
        named = proxy.get(f"/v1/blobs/{digest}", headers={"X-Forwarded-For": "127.0.0.9"})
        name = digest.removeprefix("blake3:")
        assert (named.headers["x-accel-redirect"], named.content) == (f"{INSIDE}{name[:2]}/{name}", b"")
    with alone.client(None, "127.0.0.1") as nobody:
        refused = nobody.get(f"/v1/blobs/{digest}")
        assert (refused.status_code, "x-accel-redirect" in refused.headers) == (401, False)


def test_the_proxy_s_own_folder_is_no_door(service: Service, proxy: Proxy, blob: tuple[str, bytes]) -> None:
    name = blob[0].removeprefix("blake3:")
    with Form(proxy.url).client(service.token) as client:
        for before in ("/inside/blobs/", "//inside/blobs/", "/v1/../inside/blobs/", "/%69nside/blobs/"):
            answer = client.get(httpx.URL(client.base_url, raw_path=f"{before}{name[:2]}/{name}".encode()))
            assert answer.status_code == 404, before
        forged = client.get("/v1/health", headers={"X-Accel-Redirect": f"{INSIDE}{name[:2]}/{name}"})
        assert forged.json() == {"status": "ok"}


def test_nobody_reads_by_the_proxy_what_is_not_theirs(proxy: Proxy, blob: tuple[str, bytes]) -> None:
    with Form(proxy.url).client() as client:
        assert client.get(f"/v1/blobs/{blob[0]}").status_code == 401


def test_an_upload_goes_through_as_it_comes_and_tls_is_spoken(service: Service, proxy: Proxy) -> None:
    data = random.Random(6).randbytes(2 << 20)
    digest = "blake3:" + blake3(data).hexdigest()
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=proxy.tls, verify=str(proxy.certificate), headers=headers) as client:
        assert client.put(f"/v1/blobs/{digest}", content=data).status_code == 201
        assert client.get(f"/v1/blobs/{digest}").content == data


@FULL
def test_a_poll_waits_longer_than_every_bound(service: Service, proxy: Proxy) -> None:
    token = service.worker()[1].headers["authorization"].removeprefix("Bearer ")
    with Form(proxy.url).client(token) as worker:
        answer = worker.post("/v1/work/poll", json={"determinism_class": "cpu", "capacity": 1, "wait_s": 3})
        assert answer.status_code == 200


def test_events_come_as_they_happen(service: Service, proxy: Proxy) -> None:
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    heard = threading.Event()

    def follow() -> None:
        with Form(proxy.url).client() as client, client.stream("GET", f"/v1/jobs/{job}/events") as stream:
            for line in stream.iter_lines():
                if "cancel" in line:
                    heard.set()
                    return

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    wait_until(lambda: service.context.meters.registry.get_sample_value("gradmarket_event_streams_open") == 1)
    assert service.requester.post(f"/v1/jobs/{job}/cancel").status_code == 200
    wait_for(heard)


def test_only_the_proxy_is_reached_from_outside_and_it_sees_no_key() -> None:
    """The API processes believe their peers about the caller's address."""
    services = yaml.safe_load((SAMPLE.parents[1] / "docker-compose.yml").read_text())["services"]
    for name in ("requester-1", "requester-2"):
        assert "ports" not in services[name]
        assert list(services[name]["networks"]) == ["inside"]
    assert set(services["proxy"]["networks"]) == {"inside", "market"}
    assert services["proxy"]["volumes"] == ["blobs:/blobs:ro"]
    assert services["proxy"]["secrets"] == ["tls_certificate", "tls_key"]
    assert services["worker"]["networks"] == ["market"]


def test_a_proxy_that_nobody_trusts_is_sent_to_no_file() -> None:
    with pytest.raises(ValueError, match="GRADMARKET_TRUSTED_PROXIES"):
        RequesterSettings(proxy_blobs=INSIDE)
