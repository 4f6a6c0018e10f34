"""Clients that send too little, too slowly or too much, before they are identified."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from contracts import deployment as deployments
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.lanes import FULL
from tests.patience import PATIENCE_S, dawdle, wait_for_end, wait_until
from tests.processes import drip, is_closed

QUICK = {"header_s": 2.0, "silence_s": 2.0, "body_s": 2.0}


@pytest.fixture(scope="module")
def hasty(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data = tmp_path_factory.mktemp("hasty")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url, **QUICK)) as service:
        yield service


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as made:
        yield made


def sends(made: socket.socket, first: bytes, drop: bytes = b"") -> bytes:
    """Sends `first`, then `drop` again and again, until the other side closes; returns its bytes."""
    made.sendall(first)
    return drip(made, drop)


@FULL
def test_a_silent_connection_is_closed(hasty: Service) -> None:
    with connected(hasty) as made:
        assert drip(made) == b""


@FULL
def test_a_connection_that_drips_its_header_is_closed(hasty: Service) -> None:
    with connected(hasty) as made:
        assert sends(made, b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"a") == b""


@FULL
def test_a_dripping_header_after_an_honest_request_is_closed_too(hasty: Service) -> None:
    with connected(hasty) as made:
        made.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in made.recv(65536)
        assert b"HTTP" not in sends(made, b"GET /v1/health HTTP/1.1\r\nX-Slow: ", b"a")


@FULL
def test_a_body_that_drips_is_answered_408_without_a_token(hasty: Service) -> None:
    with connected(hasty) as made:
        heard = sends(made, b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", b" ")
        assert b" 408 " in heard.splitlines()[0]
        assert b"application/problem+json" in heard


@FULL
def test_a_stalled_upload_is_closed(hasty: Service) -> None:
    head = (
        f"PUT /v1/blobs/blake3:{'0' * 64} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {hasty.token}\r\nContent-Length: 100000\r\n\r\n"
    )
    with connected(hasty) as made:
        assert sends(made, head.encode(), b"") == b""
    incoming = hasty.context.settings.data / "blobs" / "incoming"
    wait_until(lambda: not list(incoming.iterdir()), "what came of it is gone")


@FULL
def test_an_upload_that_stalls_after_a_long_time_is_closed(hasty: Service) -> None:
    """Bytes come while its timer runs out, which must be set again."""
    head = (
        f"PUT /v1/blobs/blake3:{'0' * 64} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {hasty.token}\r\nContent-Length: 100000\r\n\r\n"
    )
    with connected(hasty) as made:
        made.sendall(head.encode())
        with suppress(ConnectionError):  # a busy machine's pause may be a silence
            for _ in range(6):
                dawdle(0.3)
                made.sendall(b"piece")
        assert drip(made) == b""


@FULL
def test_an_upload_that_moves_is_not(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """It takes longer than every bound, and is never still for so long; a busy machine's pauses are no silence."""

    def slowly() -> Iterator[bytes]:
        for _ in range(12):
            dawdle(0.5)
            yield b"piece"

    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    with serving(RequesterSettings(data=tmp_path, rpc=anvil.url, **dict.fromkeys(QUICK, 5.0))) as patient:
        answer = patient.requester.put(f"/v1/blobs/blake3:{'0' * 64}", content=slowly())
    assert answer.status_code == 422, "it came whole, and was something else"


def test_a_poll_that_waits_longer_than_every_bound_is_not(hasty: Service) -> None:
    _, worker = hasty.worker()
    answer = worker.post("/v1/work/poll", json={"determinism_class": "cpu", "capacity": 1, "wait_s": 3})
    assert answer.status_code == 200


@FULL
def test_an_unread_answer_is_closed(hasty: Service) -> None:
    data = b"\0" * (32 << 20)
    digest = hasty.context.blobs.put(data)
    with connected(hasty) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        made.sendall(f"GET /v1/blobs/{digest} HTTP/1.1\r\nAuthorization: Bearer {hasty.token}\r\n\r\n".encode())
        wait_until(lambda: is_closed(made))
        assert len(to_the_end(made)) < len(data)


def to_the_end(made: socket.socket) -> bytes:
    heard = bytearray()
    try:
        while got := made.recv(1 << 20):
            heard += got
    except ConnectionError:
        return bytes(heard)
    return bytes(heard)


def test_headers_of_any_size_are_not_taken(hasty: Service) -> None:
    with connected(hasty) as made:
        made.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Large: " + b"a" * (1 << 20))
        try:
            heard = made.recv(65536)
        except ConnectionError:
            heard = b""
        assert heard == b"" or b" 400 " in heard.splitlines()[0]


@pytest.mark.parametrize("chunked", [False, True])
def test_headers_behind_a_request_that_waits_have_a_bound(hasty: Service, chunked: bool) -> None:
    """No time limit ends them while the first request is answered, and no body limit counts them."""
    _, worker = hasty.worker()
    token, poll = worker.headers["authorization"], b'{"determinism_class": "cpu", "capacity": 1, "wait_s": 60}'
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(poll)}"
    head = f"POST /v1/work/poll HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: {token}\r\n"
    with connected(hasty) as made:
        made.sendall(f"{head}{length}\r\n\r\n".encode())
        made.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(poll), poll) if chunked else poll)
        made.sendall(b"GET /v1/health HTTP/1.1\r\nX-Large: ")
        with pytest.raises(ConnectionError):
            made.sendall(b"a" * (64 << 20))


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/session", "/v1/work/poll", "/v1/jobs/x/fund"])
def test_a_body_over_the_limit_is_refused_before_anybody_is_asked_for_a_token(hasty: Service, path: str) -> None:
    assert hasty.anyone.post(path, content=b" " * (2 << 20)).status_code == 413


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_too_long_is_drained_and_its_refusal_can_be_read(service: Service, declared: bool) -> None:
    """Most clients read no answer before they have sent everything."""
    pieces = [b" " * (128 << 10)] * 16
    length = f"Content-Length: {sum(map(len, pieces))}" if declared else "Transfer-Encoding: chunked"
    with connected(service) as made:
        made.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        for piece in pieces:
            made.sendall(piece if declared else b"%x\r\n%s\r\n" % (len(piece), piece))
            dawdle(0.03)
        made.sendall((b"" if declared else b"0\r\n\r\n") + b"GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n")
        refused, _, healthy = to_the_end(made).partition(b"}")
    assert b" 413 " in refused.splitlines()[0]
    assert b"a body has at most" in refused
    assert b" 200 " in healthy.splitlines()[0], "the connection goes on behind the body"


@FULL
def test_a_refused_body_that_goes_on_for_long_is_closed(hasty: Service) -> None:
    with connected(hasty) as made:
        heard = sends(made, b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{", b" ")
        assert b" 413 " in heard.splitlines()[0]


def test_slow_clients_keep_nobody_waiting(hasty: Service) -> None:
    """Two hundred connections that drip; an honest request is answered among them."""
    with connected(hasty):
        made = [socket.create_connection((httpx.URL(hasty.url).host, httpx.URL(hasty.url).port)) for _ in range(200)]
        for each in made:
            each.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        answered: list[int] = []
        asking = threading.Thread(target=lambda: answered.append(hasty.anyone.get("/v1/health").status_code))
        asking.start()
        wait_for_end(asking)
        for each in made:
            each.close()
        assert answered == [200]


def test_a_websocket_is_not_spoken(hasty: Service) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert hasty.anyone.get("/v1/health", headers=headers).status_code == 200
