"""Payloads and downloads past the market: only on the market's word, and only where this worker's owner allows it."""

import time
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from blake3 import blake3

from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.terms import Digest, ReplicaId, ReplicaState
from gradmarket.market.wire.framing import PartAddress
from gradmarket.market.wire.poll import Lease, PayloadPart, PollRequest, UploadRequest
from gradmarket.network import DownloadFailed, DownloadRefused
from tests.kit.web_server import send_page, serving_by
from worker.journal import Journal
from worker.markets.leasing import Leasing
from worker.markets.sending import Sending
from worker.markets.worker_context import IN_VAIN, MOST_MORE, WorkerContext
from worker.protocol.in_flight import InFlight, InFlightFolder
from worker.protocol.outgoing import ObjectStores, Payload

DATA = b"gradient" * 1000
NAME = Digest("blake3:" + blake3(DATA).hexdigest())
PUBLIC = "93.184.216.34"
NOBODY: frozenset[str] = frozenset()


class Store(BaseHTTPRequestHandler):
    """Keeps PUT bodies and the requests; `moved`: path -> its redirect; `status` of every PUT."""

    kept: ClassVar[dict[str, bytes]] = {}
    headers_seen: ClassVar[list[dict[str, str]]] = []
    moved: ClassVar[dict[str, str]] = {}
    status: ClassVar[int] = 200

    def do_PUT(self) -> None:
        self.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        self.kept[self.path] = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        if self.path in self.moved:
            self.send_header("location", self.moved[self.path])
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        if self.path in self.moved:
            self.send_response(307)
            self.send_header("location", self.moved[self.path])
            self.send_header("content-length", "0")
            self.end_headers()
            return
        send_page(self, DATA)


@pytest.fixture
def places() -> Iterator[tuple[str, str]]:
    """The market's origin and a store's."""
    Store.kept, Store.headers_seen, Store.moved, Store.status = {}, [], {}, 200
    with serving_by(Store) as market, serving_by(Store) as store:
        yield market, store


@pytest.fixture
def payload(tmp_path: Path) -> Payload:
    path = tmp_path / "payload"
    path.write_bytes(DATA)
    return Payload(path, lambda: None)


def fetcher(folder: Path, market: str, stores: frozenset[str]) -> Fetcher:
    return Fetcher(Cache(folder / "cache", 10**6), market, 10**6, bearer=lambda: {"authorization": "x"}, stores=stores)


def test_a_payload_goes_to_the_store_that_the_owner_named(places: tuple[str, str], payload: Payload) -> None:
    ObjectStores(frozenset({places[1]})).put(f"{places[1]}/door?signed=1", payload)
    assert Store.kept == {"/door?signed=1": DATA}
    assert "authorization" not in Store.headers_seen[0]
    assert Store.headers_seen[0]["content-length"] == str(len(DATA))


@pytest.mark.parametrize(
    "door", ["{store}/door", "http://169.254.169.254/x", "file:///etc/passwd", "/door", "door", ""]
)
def test_no_payload_goes_into_the_own_network_unless_its_owner_allows_it(
    places: tuple[str, str], payload: Payload, door: str
) -> None:
    with pytest.raises(DownloadRefused):
        ObjectStores(NOBODY).put(door.format(store=places[1]), payload)
    with pytest.raises(DownloadRefused):
        ObjectStores(frozenset({"http://127.0.0.1:1"})).put(door.format(store=places[1]), payload)
    assert Store.kept == {}


def test_a_name_that_leads_into_the_own_network_is_refused(payload: Payload) -> None:
    with pytest.raises(DownloadRefused, match="GRADMARKET_WORKER_STORES"):
        ObjectStores(NOBODY, lambda _host, _port: [PUBLIC, "10.0.0.1"]).put("https://store.example/door", payload)


def test_a_store_that_sends_elsewhere_or_refuses_has_not_taken_it(places: tuple[str, str], payload: Payload) -> None:
    Store.moved["/door"], Store.status = f"{places[0]}/other", 307
    with pytest.raises(DownloadFailed, match="307"):
        ObjectStores(frozenset({places[1]})).put(f"{places[1]}/door", payload)
    assert "/other" not in Store.kept
    Store.status = 403
    with pytest.raises(DownloadFailed, match="403"):
        ObjectStores(frozenset({places[1]})).put(f"{places[1]}/door", payload)


def test_a_store_that_is_not_there_has_not_taken_it(payload: Payload) -> None:
    with pytest.raises(DownloadFailed):
        ObjectStores(frozenset({"http://127.0.0.1:1"})).put("http://127.0.0.1:1/door", payload)


def test_the_market_may_send_a_download_to_a_store_that_the_owner_named(
    places: tuple[str, str], tmp_path: Path
) -> None:
    Store.moved[f"/v1/blobs/{NAME}"] = f"{places[1]}/bytes"
    assert fetcher(tmp_path, places[0], frozenset({places[1]})).blob(NAME) == DATA
    assert ["authorization" in headers for headers in Store.headers_seen] == [True, False]


def test_a_store_s_redirect_into_the_own_network_is_refused(places: tuple[str, str], tmp_path: Path) -> None:
    Store.moved[f"/v1/blobs/{NAME}"] = f"{places[1]}/bytes"
    with pytest.raises(DownloadRefused):
        fetcher(tmp_path, places[0], NOBODY).blob(NAME)


def test_a_dataset_may_not_name_the_store_by_itself(places: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(DownloadRefused):
        fetcher(tmp_path, places[0], frozenset({places[1]})).get(f"{places[1]}/bytes", NAME)


def test_a_store_may_not_send_it_on_to_another(places: tuple[str, str], tmp_path: Path) -> None:
    Store.moved |= {f"/v1/blobs/{NAME}": f"{places[1]}/bytes", "/bytes": f"{places[1]}/again"}
    with pytest.raises(DownloadRefused):
        fetcher(tmp_path, places[0], frozenset({places[1]})).blob(NAME)


def sending(allowed: frozenset[str], tmp_path: Path, payload: Payload) -> Sending:
    """Of a worker that was asked for the payload of its one replica."""
    context = SimpleNamespace(stores=ObjectStores(allowed), journal=Journal(as_json=True))
    context.put = partial(WorkerContext.put, cast(WorkerContext, context))
    replica_files = InFlightFolder(tmp_path / "held")
    held = InFlight.model_construct(
        lease=Lease.model_construct(replica=ReplicaId("r"), fence=1),
        state=ReplicaState.AGREE,
        prepared=True,
        promised=True,
        asked=True,
    )
    replica_files.held[held.replica] = held
    payload.path.rename(replica_files.payload(held.replica))
    leasing = SimpleNamespace(may_send=lambda: 1, is_at_unpaid_limit=lambda: False)
    return Sending(cast(WorkerContext, context), replica_files, cast(Leasing, leasing), time.time)


PARTS = (PartAddress(start=0, length=5000, address="/one"), PartAddress(start=5000, length=3000, address="/two"))


class Doors:
    """A market that lists which of the two parts the store lacks."""

    def __init__(self, store: str) -> None:
        self.store, self.asked = store, 0

    def missing_parts(self, _replica: ReplicaId, _fence: int) -> list[PartAddress]:
        self.asked += 1
        missing = (part for part in PARTS if part.address not in Store.kept)
        return [part.model_copy(update={"address": self.store + part.address}) for part in missing]


def put_in_parts(doors: Doors, allowed: frozenset[str], payload: Payload) -> bool:
    context = SimpleNamespace(stores=ObjectStores(allowed), journal=Journal(as_json=True), market=doors)
    held = InFlight.model_construct(lease=Lease.model_construct(replica=ReplicaId("r"), fence=1))
    return WorkerContext.put_in_parts(cast(WorkerContext, context), payload, held)


def test_a_long_payload_goes_to_the_store_part_by_part(places: tuple[str, str], payload: Payload) -> None:
    assert put_in_parts(Doors(places[1]), frozenset({places[1]}), payload)
    assert Store.kept == {"/one": DATA[:5000], "/two": DATA[5000:]}
    sums = [headers["content-md5"] for headers in Store.headers_seen]
    assert sums == [b64encode(md5(part).digest()).decode() for part in (DATA[:5000], DATA[5000:])]


def test_a_part_that_the_store_has_is_not_sent_again(places: tuple[str, str], payload: Payload) -> None:
    """As after the worker was killed between the two."""
    Store.kept["/one"] = DATA[:5000]
    assert put_in_parts(Doors(places[1]), frozenset({places[1]}), payload)
    assert len(Store.headers_seen) == 1
    assert Store.kept["/two"] == DATA[5000:]


def test_a_part_that_fails_is_tried_again_and_not_for_ever(
    places: tuple[str, str], payload: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors, tries = Doors(places[1]), list[str]()
    honest = ObjectStores.put

    def fails(stores: ObjectStores, door: str, payload: Payload, start: int = 0, length: int | None = None) -> None:
        tries.append(door)
        if len(tries) < 3:
            raise DownloadFailed("cut off")
        honest(stores, door, payload, start, length)

    monkeypatch.setattr(ObjectStores, "put", fails)
    assert put_in_parts(doors, frozenset({places[1]}), payload)
    assert (len(tries), doors.asked) == (4, 3)
    Store.kept.clear()
    tries[:] = []
    monkeypatch.setattr(ObjectStores, "put", lambda *_: fails(*_) if len(tries) > 99 else _refused(tries))
    assert not put_in_parts(doors, frozenset({places[1]}), payload)
    assert len(tries) == IN_VAIN + 1


class Forgetful(Doors):
    """A market that has never seen the first part."""

    def missing_parts(self, _replica: ReplicaId, _fence: int) -> list[PartAddress]:
        Store.kept.clear()
        self.asked += 1
        assert self.asked < 1000, "it goes on for ever"
        return super().missing_parts(_replica, _fence)[:1]


def test_a_market_that_wants_a_part_again_and_again_holds_no_worker(
    places: tuple[str, str], payload: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[int]()
    monkeypatch.setattr(ObjectStores, "put", lambda *part: sent.append(part[-1]))
    assert not put_in_parts(Forgetful(places[1]), frozenset({places[1]}), payload)
    assert len(sent) == MOST_MORE


def _refused(tries: list[str]) -> None:
    tries.append("")
    raise DownloadFailed("no")


def test_no_part_goes_into_the_own_network_unless_its_owner_allows_it(
    places: tuple[str, str], payload: Payload
) -> None:
    assert not put_in_parts(Doors(places[1]), NOBODY, payload)
    assert Store.kept == {}


def brought(sent: Sending, door: str | None) -> str:
    """How the next request brings the payload."""
    sent.record_request(UploadRequest(replica=ReplicaId("r"), seconds=30, door=door))
    (part,) = sent.parts(sent.chosen())
    return "put" if part.put else "beside"


@pytest.mark.parametrize(("door", "allowed", "how"), [(0, 1, "beside"), (1, 1, "put"), (1, 0, "beside")])
def test_a_payload_goes_through_the_market_where_no_store_takes_it(
    places: tuple[str, str], payload: Payload, tmp_path: Path, door: int, allowed: int, how: str
) -> None:
    sent = sending(frozenset({places[1]} if allowed else ()), tmp_path, payload)
    assert brought(sent, f"{places[1]}/door" if door else None) == how


def test_a_payload_that_the_market_does_not_find_in_the_store_goes_through_it(
    places: tuple[str, str], payload: Payload, tmp_path: Path
) -> None:
    sent = sending(frozenset({places[1]}), tmp_path, payload)
    door = f"{places[1]}/door"
    assert brought(sent, door) == "put"
    sent.note_confirmed_payloads(
        PollRequest(payloads=(PayloadPart(replica=ReplicaId("r"), fence=1, put=True),)), {ReplicaId("r")}
    )
    assert brought(sent, door) == "beside"
