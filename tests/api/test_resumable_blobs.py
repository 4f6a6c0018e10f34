"""Uploads of blobs that break off: the client goes on where the service has them, and nobody else does."""

import asyncio
import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest

from gradmarket.client import AsyncRequesterClient, RequesterClient
from gradmarket.client import transport as transport_module
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.wire.framing import UPLOAD_OFFSET
from gradmarket.network import own_header
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.features.windows import state_upload
from tests.api.api_service import Service
from tests.patience import wait_for

PIECE = 1 << 10


@pytest.fixture(autouse=True)
def of_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    monkeypatch.setattr(transport_module, "PIECE", PIECE)
    monkeypatch.setattr(transport_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(transport_module, "LONGEST_PAUSE_S", 0.01)


class Relay:
    """Passes connections on, and breaks those that bring a body after the next of `cuts` bytes; counts what passed."""

    def __init__(self, to: str, cuts: list[int]) -> None:
        self.to, self.cuts, self.passed = urlsplit(to), cuts, 0
        self._lock = threading.Lock()

    def carry(self, near: socket.socket) -> None:
        with near, socket.create_connection((self.to.hostname or "", self.to.port or 0)) as far, suppress(OSError):
            back = threading.Thread(target=_pour, args=(far, near), daemon=True)
            back.start()
            left: int | None = None
            while data := near.recv(1 << 12):
                if data.startswith(b"PUT"):
                    with self._lock:
                        left = self.cuts.pop(0) if self.cuts else None
                if left is not None:
                    data, left = data[:left], left - len(data)
                far.sendall(data)
                self.passed += len(data)
                if left is not None and left <= 0:
                    break
            far.shutdown(socket.SHUT_WR)  # no reset: what has passed comes
            back.join()


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def relayed(service: Service, cuts: list[int]) -> Iterator[tuple[Relay, str]]:
    relay = Relay(service.url, cuts)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near, _ = door.accept()
                    threading.Thread(target=relay.carry, args=(near,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield relay, f"http://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)


def break_off(service: Service, owner: str, data: bytes, sent: int) -> httpx.Client:
    """An upload under a new token broke off after `sent` bytes; returns the token's client."""
    made = service.requester.post("/v1/tokens", json={"name": owner, "role": "submit"})
    with suppress(ConnectionError), service.context.blobs.continued(owner, blob_digest(data), 0) as incoming:
        incoming.write(data[:sent])
        raise ConnectionError
    client = service.client(made.json()["token"])
    assert received(client, data) == sent
    return client


def received(client: httpx.Client, data: bytes, unserved: bool = False) -> int:
    answer = client.get(f"/v1/blobs/{blob_digest(data)}/received", params={"unserved": "true"} if unserved else {})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["received"])


def put_rest(client: httpx.Client, data: bytes, start: int, body: bytes | None = None) -> httpx.Response:
    rest = data[start:] if body is None else body
    return client.put(f"/v1/blobs/{blob_digest(data)}", content=rest, headers={UPLOAD_OFFSET: str(start)})


@pytest.mark.parametrize("kind", ["plain", "asynchronous", "unserved"])
def test_a_client_goes_on_after_each_break_and_sends_little_twice(service: Service, kind: str) -> None:
    data = Random(kind).randbytes(3000 * PIECE)
    with relayed(service, [900 * PIECE] * 3) as (relay, url):
        if kind == "asynchronous":

            async def upload() -> str:
                async with AsyncRequesterClient(url, service.token) as market:
                    return await market.upload(data)

            digest = asyncio.run(upload())
        else:
            with RequesterClient(url, service.token) as market:
                digest = market.upload(data) if kind == "plain" else market.upload_unserved(data)
    assert relay.cuts == []
    assert service.context.blobs.read(Digest(digest)) == data
    assert relay.passed < 1.5 * len(data), "each break sends the whole again"
    assert received(service.requester, data) == 0


def test_a_client_gives_up_where_nothing_comes_and_a_later_call_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "STALLED_S", 0.0)
    data = Random(1).randbytes(1000 * PIECE)
    with (
        relayed(service, [700 * PIECE] + [100] * 50) as (_, url),
        RequesterClient(url, service.token) as market,
        pytest.raises(ServiceUnreachable),
    ):
        market.upload(data)
    before = received(service.requester, data)
    assert before > 300 * PIECE
    with relayed(service, []) as (relay, url), RequesterClient(url, service.token) as market:
        assert market.upload(data) == blob_digest(data)
    assert relay.passed < len(data) - before + 5000


def test_an_unreachable_service_is_not_tried_again(service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        free = door.getsockname()[1]
    with RequesterClient(f"http://127.0.0.1:{free}", service.token) as market, pytest.raises(ServiceUnreachable):
        market.upload_unserved(bytes(10 * PIECE))


def test_another_caller_neither_learns_of_an_upload_nor_goes_on_with_it(service: Service) -> None:
    data = Random(2).randbytes(10 * PIECE)
    own = break_off(service, "breaks-off", data, 4 * PIECE)
    _, worker = service.worker()
    assert [received(client, data) for client in (worker, service.requester)] == [0, 0]
    assert put_rest(service.requester, data, 4 * PIECE).status_code == 409
    assert put_rest(own, data, 4 * PIECE).status_code == 201


@pytest.mark.parametrize("start", [4 * PIECE + 1, 10 * PIECE, 2**63 - 1])
def test_an_offset_beyond_the_bytes_that_are_there_is_refused(service: Service, start: int) -> None:
    data = Random(start).randbytes(10 * PIECE)
    own = break_off(service, f"skips-{start}", data, 4 * PIECE)
    assert put_rest(own, data, start, b"rest").status_code == 409
    assert received(own, data) == 4 * PIECE


@pytest.mark.parametrize("start", ["-1", "x", str(2**63), "1.5", ""])
def test_an_offset_that_is_no_number_is_refused(service: Service, start: str) -> None:
    answer = service.requester.put(f"/v1/blobs/{blob_digest(b'a')}", content=b"a", headers={UPLOAD_OFFSET: start})
    assert answer.status_code == 422, answer.text


def test_other_bytes_are_refused_and_none_of_them_stays(service: Service) -> None:
    data = Random(3).randbytes(10 * PIECE)
    own = break_off(service, "spoils", data, 4 * PIECE)
    spoilt = put_rest(own, data, 4 * PIECE, bytes(6 * PIECE))
    assert spoilt.status_code == 422
    assert "the bytes are" in spoilt.json()["detail"]
    assert received(own, data) == 0
    assert own.head(f"/v1/blobs/{blob_digest(data)}").status_code == 404
    assert put_rest(own, data, 0).status_code == 201


def test_an_earlier_byte_may_be_brought_again(service: Service) -> None:
    data = Random(4).randbytes(10 * PIECE)
    own = break_off(service, "goes-back", data, 4 * PIECE)
    assert put_rest(own, data, PIECE).status_code == 201
    assert service.context.blobs.read(blob_digest(data)) == data


def test_a_blob_beyond_the_limit_is_refused_in_parts_too(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Random(5).randbytes(10 * PIECE)
    own = break_off(service, "large", data, 4 * PIECE)
    limited = service.context.settings.model_copy(update={"max_blob_bytes": 8 * PIECE})
    monkeypatch.setitem(vars(service.context), "settings", limited)
    assert put_rest(own, data, 4 * PIECE).status_code == 413
    assert received(own, data) == 0, "bytes that can never become a blob stay on the disk"


def test_a_blob_beyond_the_tokens_quota_leaves_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Random(6).randbytes(10 * PIECE)
    own = break_off(service, "spent", data, 4 * PIECE)
    limited = service.context.settings.model_copy(update={"upload_quota": 9 * PIECE})
    monkeypatch.setitem(vars(service.context), "settings", limited)
    refused = put_rest(own, data, 4 * PIECE)
    assert (refused.status_code, "GRADMARKET_UPLOAD_QUOTA" in refused.json()["detail"]) == (413, True)
    assert received(own, data) == 0


def test_a_failing_disk_costs_no_byte_that_came(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Random(7).randbytes(10 * PIECE)
    own = break_off(service, "full-disk", data, 4 * PIECE)

    def fail(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Incoming, "sync", fail)
        assert put_rest(own, data, 4 * PIECE).status_code == 503
    assert received(own, data) == 10 * PIECE
    assert put_rest(own, data, 10 * PIECE).status_code == 201


def test_a_state_that_is_being_stored_is_not_opened_by_a_later_request(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one would cut the file off under the thread that reads it: that ends the process."""
    data = Random(8).randbytes(10 * PIECE)
    digest = blob_digest(data)
    storing, may_store = threading.Event(), threading.Event()

    def store_slowly(context: Context, _want: object, incoming: Incoming) -> None:
        storing.set()
        wait_for(may_store)
        context.blobs.store_blob(incoming)

    wanted = SimpleNamespace(digest=digest, most_bytes=len(data))
    monkeypatch.setattr(state_upload, "load_wanted_state", lambda *_asked: wanted)
    monkeypatch.setattr(state_upload, "store_state", store_slowly)
    _, worker = service.worker()
    headers = {UPLOAD_OFFSET: "0", **dict([own_header()])}

    def put(body: bytes) -> int:
        return worker.put(f"/v1/work/states/{digest}", content=body, headers=headers).status_code

    with ThreadPoolExecutor() as pool:
        first = pool.submit(put, data)
        wait_for(storing)
        second = put(bytes(len(data)))
        may_store.set()
        assert (first.result(), second) == (200, 409)
    assert service.context.blobs.read(digest) == data


def test_unserved_rows_that_are_there_are_not_sent_again(service: Service) -> None:
    """Nor does another learn that they are there: to each they are as absent as ever."""
    data = Random(9).randbytes(1000 * PIECE)
    with relayed(service, []) as (relay, url):
        for _ in range(2):
            with RequesterClient(url, service.token) as market:
                digest = Digest(market.upload_unserved(data))
    assert relay.passed < 1.1 * len(data)
    other = service.client(
        service.requester.post("/v1/tokens", json={"name": "curious", "role": "submit"}).json()["token"]
    )
    _, worker = service.worker()
    seen = [received(client, data, unserved=True) for client in (other, worker, service.requester)]
    assert seen == [0, 0, len(data)]
    assert other.put(f"/v1/blobs/{digest}?unserved=true", headers={UPLOAD_OFFSET: str(len(data))}).status_code == 409
    assert service.requester.put(f"/v1/blobs/{digest}", headers={UPLOAD_OFFSET: str(len(data))}).status_code == 409
    assert service.requester.head(f"/v1/blobs/{digest}").status_code == 404
    with RequesterClient(service.url, service.token) as market:
        market.upload(data)
    assert service.requester.head(f"/v1/blobs/{digest}").status_code == 200
    service.context.blobs.drop(digest)  # as a restored backup lacks it
    assert received(service.requester, data, unserved=True) == 0
