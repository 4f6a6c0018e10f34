"""The cost of one address without a paid worker: its requests, bodies, connections and streams are bounded."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contracts import deployment as deployments
from gradmarket.market.terms import ReplicaState
from requester.api.auth_routes import WORKER
from requester.features import api_tokens
from requester.features.body_limits.token_first import OPEN, WRITING
from requester.features.chain_door import node_door
from requester.features.slow_clients import HEADER_LINES
from requester.settings import RequesterSettings
from requester.store import identities
from requester.store.tables import ApiToken, Replica
from tests.api.api_service import Service, serving
from tests.api.test_authorisation import BODIES, EXPECTED, JOB, POLL, with_a_replica
from tests.lanes import FULL
from tests.patience import PATIENCE_S

FEW: dict[str, Any] = {"stranger_rate": 0.01, "stranger_burst": 20, "refused_s": 0.0}


@contextmanager
def limited(anvil, deployment, folder, **changed: Any) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, folder / "deployment.json")
    with serving(RequesterSettings(data=folder, rpc=anvil.url, **(FEW | {"unlimited": frozenset()} | changed))) as made:
        yield made


def statuses(client: httpx.Client, times: int, **options: Any) -> list[int]:
    return [client.get("/v1/health", **options).status_code for _ in range(times)]


def test_wallets_that_were_never_paid_share_their_address_s_allowance(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Three of them have 33 requests' worth: a nonce, a sign-in, which counts as ten, and the rest."""
    with limited(anvil, deployment, tmp_path, stranger_burst=40) as service:
        workers = [service.worker()[1] for _ in range(3)]
        found = [worker.post("/v1/work/poll", json=POLL).status_code for worker in workers for _ in range(3)]
        assert found == [200] * found.index(429) + [429] * (9 - found.index(429))
        assert 3 <= found.index(429) <= 7
        assert statuses(service.requester, 60) == [200] * 60, "the requester is no stranger"


def paid(service: Service) -> tuple[str, httpx.Client]:
    """Returns the address and the client of a worker one of whose answers was accepted."""
    address, worker = service.worker()
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    _, replica = with_a_replica(service, job, address)
    with service.context.begin() as work:
        work.get_one(Replica, replica).state = ReplicaState.PAYABLE
    return address, worker


def test_a_worker_that_was_paid_is_no_stranger(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path, stranger_burst=11) as service:
        _, worker = paid(service)
        assert worker.post("/v1/work/poll", json=POLL).status_code == 200
        assert statuses(service.anyone, 1) == [429]
        assert [worker.post("/v1/work/poll", json=POLL).status_code for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("who", ["a worker", "the requester"])
def test_a_sign_in_costs_every_sender_its_price(anvil, deployment, tmp_path, who: str) -> None:  # type: ignore[no-untyped-def]
    """Of 40 requests' worth the first worker took 11; two sign-ins of ten are left, and nine requests."""
    with limited(anvil, deployment, tmp_path, stranger_burst=40) as service:
        _, worker = paid(service)
        client = worker if who == "a worker" else service.requester
        found = [client.post("/v1/session", json={"message": "x", "signature": "0x"}).status_code for _ in range(3)]
        assert found == [found[0], found[0], 429]
        assert found[0] != 429
        assert statuses(client, 30) == [200] * 30, "what has no such price goes on"


@FULL
def test_a_paid_worker_s_long_bodies_count_for_more_with_any_of_its_tokens(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A poll of 256 KiB counts as 17 requests of its wallet's 40."""
    with limited(anvil, deployment, tmp_path, stranger_burst=100, token_rate=0.01, token_burst=40) as service:
        address, worker = paid(service)
        with service.context.begin() as work:
            other = identities.issue_token(
                work, WORKER, address, service.context.clock() + 100, service.context.clock()
            )
        clients = (worker, service.client(other), worker)
        assert [client.post("/v1/work/poll", content=b"[" * (1 << 18)).status_code for client in clients] == [
            422,
            422,
            429,
        ]
        assert worker.post("/v1/work/poll", json=POLL).status_code == 200


def test_an_api_token_lifts_no_limit_once_it_is_revoked(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The health route needs no token, so only the rate limit looks the token up."""
    with limited(anvil, deployment, tmp_path) as service:
        named = service.requester.post("/v1/tokens", json={"name": "ci", "role": "read"}).json()
        client = service.client(named["token"])
        assert statuses(client, 30) == [200] * 30
        with service.context.begin() as work:  # as another process does
            assert api_tokens.revoke_token(work, "ci", time.time())
        assert statuses(client, 21) == [200] * 20 + [429]


@FULL
def test_an_api_token_lifts_no_limit_once_it_has_expired(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path) as service:
        named = service.requester.post("/v1/tokens", json={"name": "ci", "role": "read"}).json()
        client = service.client(named["token"])
        assert statuses(client, 30) == [200] * 30
        with service.context.begin() as work:
            row = work.session.scalars(select(ApiToken).where(ApiToken.subject == "ci")).one()
            row.until = service.context.clock() - 1
        assert statuses(client, 21) == [200] * 20 + [429]


@FULL
def test_made_up_tokens_of_its_address_take_nothing_from_an_api_token(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """They use up the look-ups of unknown tokens; a token that was valid a moment ago needs none of them."""
    with limited(anvil, deployment, tmp_path) as service:
        assert statuses(service.requester, 1) == [200]
        made_up = [service.client(f"made-up-{number}") for number in range(25)]
        assert [statuses(client, 1) for client in made_up][-1] == [429]
        assert statuses(service.requester, 30) == [200] * 30


def test_a_long_body_counts_for_more(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path) as service:
        long = {"content": b"[" * (1 << 18)}
        assert service.anyone.post("/v1/jobs", **long).status_code == 401
        assert service.anyone.post("/v1/jobs", **long).status_code == 429


def test_a_body_of_no_declared_length_counts_as_the_longest(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path) as service:
        pieces = [b"{", b"}"]
        assert service.anyone.post("/v1/jobs", content=iter(pieces)).status_code == 401
        assert service.anyone.post("/v1/jobs", content=iter(pieces)).status_code == 429


def test_a_proxy_on_loopback_that_nobody_trusts_has_the_limits_of_one_address(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path, unlimited=RequesterSettings().unlimited) as service:
        assert statuses(service.anyone, 60) == [200] * 60
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
            found = statuses(service.anyone, 21, headers={name: "192.0.2.1"})
            assert found[-1] == 429, name
        assert statuses(service.anyone, 60) == [200] * 60


@pytest.mark.parametrize(
    ("said", "exempt"),
    [
        ({}, True),
        ({"url": "http://127.0.0.1:9000"}, True),
        ({"url": "http://localhost:9000"}, True),
        ({"url": "https://[::1]"}, True),
        ({"url": "https://market.example"}, False),
        ({"url": "https://market.example", "unlimited": ["127.0.0.0/8"]}, True),
        ({"url": "https://market.example", "trusted_proxies": ["127.0.0.1"]}, True),
    ],
)
def test_loopback_is_limited_behind_another_address(said: dict[str, Any], exempt: bool) -> None:
    assert bool(RequesterSettings(**said).exempt) == exempt


@pytest.mark.parametrize("route", [route for route in EXPECTED if route[0] in WRITING], ids=" ".join)
def test_a_body_is_not_read_for_nobody(service: Service, route: tuple[str, str]) -> None:
    """A body that is no JSON gets 401 on every route that needs a caller, and not its fault."""
    method, path = route
    place = path.format(
        **dict.fromkeys(("job_id", "task_id", "replica", "address", "name", "webhook_id"), "x"),
        number=0,
        digest="blake3:" + "0" * 64,
        fence=1,
        attempt=0,
        step=1,
    )
    options = {name: value for name, value in BODIES.get(route, {}).items() if name == "params"}
    answer = service.anyone.request(method, place, content=b"{" * 1000, **options)
    open_to_all = 200 if path == node_door.PATH else 422  # JSON-RPC has its own form of errors
    assert answer.status_code == (open_to_all if path in OPEN else 401)


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as made:
        yield made


HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n"


def answered(made: socket.socket, request: bytes = HEALTH + b"\r\n") -> bool:
    try:
        made.sendall(request)
        heard = b""
        while not heard.endswith(b"}") and (piece := made.recv(1 << 16)):
            heard += piece
        return heard.startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def test_an_address_has_so_many_connections_and_no_more(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with limited(anvil, deployment, tmp_path, address_connections=3) as service:
        with ExitStack() as stack:
            first = [stack.enter_context(connected(service)) for _ in range(3)]
            assert [answered(made) for made in first] == [True] * 3
            with connected(service) as fourth:
                assert not answered(fourth)
        for _ in range(100):  # places come back as fast as the service hears that they are free
            with connected(service) as later:
                if answered(later):
                    break
        else:
            pytest.fail("no place came back")


def test_a_request_has_a_limited_number_of_header_lines(service: Service) -> None:
    fits, does_not = (HEALTH + b"a: b\r\n" * lines + b"\r\n" for lines in (HEADER_LINES - 3, HEADER_LINES))
    with connected(service) as made:
        assert answered(made, fits)
        assert answered(made, fits)
        assert not answered(made, does_not)
    with connected(service) as made:  # behind another one, in one piece
        made.sendall(fits + does_not)
        heard = b""
        while piece := made.recv(1 << 16):
            heard += piece
        assert heard.count(b"HTTP/1.1 200") == heard.count(b"HTTP/1.1 431") == 1, "it is told why"


def test_a_query_of_thousands_of_names_is_not_taken_apart(service: Service) -> None:
    fits, does_not = ("&".join(["a"] * names) for names in (1000, 1100))
    assert service.anyone.get(f"/v1/jobs?{fits}").status_code == 200
    refused = service.anyone.get(f"/v1/jobs?{does_not}")
    assert (refused.status_code, refused.headers["content-type"]) == (414, "application/problem+json")
