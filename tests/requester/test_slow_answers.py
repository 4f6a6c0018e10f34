"""A long payload that comes with its commitment: one transaction where it comes quickly, a promise meanwhile else."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from gradmarket.market.terms import ReplicaState, Units
from gradmarket.market.wire.framing import frame_poll_request, piece_digest
from gradmarket.market.wire.poll import Answer, PayloadPart, PollRequest
from requester.store import identities
from requester.store.tables import Worker
from tests.patience import PATIENCE_S, wait_until
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker
from tests.requester.upload_door import PIECE, served

NewMarket = Callable[..., MarketFixture]
PARTS = "requester.api.payload_uploads"


@pytest.fixture
def alone(new_market: NewMarket, monkeypatch: pytest.MonkeyPatch) -> MarketFixture:
    """One worker with a lease of a task that nobody else votes on; its payload has several pieces."""
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    monkeypatch.setattr(f"{PARTS}.LARGE", PIECE)
    market = new_market(replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
    market.worker()
    market.gather()
    return market


def body_of(worker: SimWorker, **more: Any) -> bytes:
    held = worker.computed(worker.newest())
    said = Answer(commitment=worker.commitment(held), salt=held.salt, root=held.root)
    part = PayloadPart(replica=held.lease.replica, fence=held.lease.fence, start=0)
    pieces = [held.payload[begin : begin + PIECE] for begin in range(0, len(held.payload), PIECE)]
    request = PollRequest(answers=(said,), payloads=(part,), wait_s=0, **more)
    return frame_poll_request(request) + b"".join(piece_digest(piece) + piece for piece in pieces)


@contextmanager
def sending(market: MarketFixture, body: bytes, less: int) -> Iterator[socket.socket]:
    """A connection on which all but the last `less` bytes of the body are sent."""
    (worker,) = market.workers
    with market.context.begin() as work:
        token = identities.issue_token(work, "worker", worker.address, None, market.clock())
    with served(market) as url:
        place = httpx.URL(url)
        head = ["POST /v1/work/answers HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Connection: close"]
        with socket.create_connection((place.host, place.port or 80), timeout=PATIENCE_S) as connection:
            connection.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode())
            connection.sendall(body[: len(body) - less])
            yield connection


def there(market: MarketFixture) -> int:
    (worker,) = market.workers
    lease = worker.newest().lease
    return market.context.blobs.unfinished.received(worker.address, f"{lease.replica} {lease.fence}")


@pytest.mark.parametrize(("slow_s", "meanwhile"), [(0.0, ReplicaState.AGREE), (600.0, ReplicaState.LEASED)])
def test_a_slow_upload_of_an_agreed_answer_is_paid(
    alone: MarketFixture, monkeypatch: pytest.MonkeyPatch, slow_s: float, meanwhile: ReplicaState
) -> None:
    monkeypatch.setattr(f"{PARTS}.SLOW_S", slow_s)
    monkeypatch.setattr(f"{PARTS}.SLOW_PART", 1)
    (worker,) = alone.workers
    body = body_of(worker)
    with sending(alone, body, less=1) as connection:
        wait_until(lambda: there(alone) == 3 * PIECE and alone.replica(worker).state == meanwhile)
        connection.sendall(body[-1:])
        assert b" 200 " in connection.recv(1 << 16).split(b"\r\n")[0]
    assert alone.replica(worker).state == ReplicaState.PAYABLE
    assert alone.earned() == {worker.address: PRICE}
    check_books(alone)


def test_a_worker_s_jobs_and_prices_are_recorded_while_it_uploads(
    alone: MarketFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker of one job counts as one of every job, at any price, until its payload is there."""
    monkeypatch.setattr(f"{PARTS}.SLOW_S", 0.0)
    (worker,) = alone.workers
    body = body_of(worker, jobs=(alone.job,), min_price=Units(3), min_prices={alone.job: Units(4)})
    with sending(alone, body, less=1) as connection:
        wait_until(lambda: alone.replica(worker).state == ReplicaState.AGREE)
        with alone.reading() as reader:
            row = reader.get_one(Worker, worker.address)
            assert (row.jobs, row.least_price, row.least_prices) == ([alone.job], 3, {alone.job: 4})
        connection.sendall(body[-1:])
        assert b" 200 " in connection.recv(1 << 16).split(b"\r\n")[0]


def test_an_upload_that_never_ends_is_not_paid(alone: MarketFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{PARTS}.SLOW_S", 0.0)
    (worker,) = alone.workers
    with sending(alone, body_of(worker), less=1):
        wait_until(lambda: alone.replica(worker).state == ReplicaState.AGREE)
    alone.lapse(1000)
    assert alone.replica(worker).state == ReplicaState.WITHHELD
    assert alone.earned() == {}
