"""A payload uploaded past the service has the same rules as any other: its length, its root, its address."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.market.wire.poll import PollRequest
from requester import blobs as stores
from requester.exchange import payload_upload, poll
from requester.settings import RequesterSettings
from tests.bucket import KEYS, s3_server
from tests.lanes import leave_to_full
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, answered, part_of, wants


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def market(new_market, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MarketFixture:  # type: ignore[no-untyped-def]
    """Its blobs lie in a bucket; three workers have agreed, and one is asked for the payload."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    made: MarketFixture = new_market()
    settings = RequesterSettings(data=tmp_path, blobs="s3", s3_endpoint=s3, s3_bucket="floor")  # type: ignore[arg-type]
    bucket, before = stores.open_blob_store(settings), made.context.blobs
    for path in (made.folder / "blobs").glob("*/*"):
        bucket.put(path.read_bytes())
    assert not before.reached_past_us
    made.context = replace(made.context, blobs=bucket)
    for _ in range(3):
        made.worker()
    made.gather()
    for worker in made.workers:
        worker.computed(worker.newest())
    made.commit()
    made.reveal()
    for worker in made.workers:
        worker.receive_answer()
    return made


def find_uploader(market: MarketFixture) -> SimWorker:
    return next(worker for worker in market.workers if worker.newest().wanted)


def door(market: MarketFixture, worker: SimWorker) -> str:
    (wanted,) = answered(market, worker, PollRequest()).uploads
    assert wanted.door is not None
    return wanted.door


def report_upload(market: MarketFixture, worker: SimWorker) -> None:
    held = worker.newest()
    want = wants(market, worker, held.lease.replica, held.lease.fence)
    with ExitStack() as files:
        delivery = payload_upload.fetch_direct_upload(market.context, want, held.lease.fence, files)
        deliveries = () if delivery is None else (delivery,)
        poll.handle_polls(market.context, [replace(worker.poll(payloads=(part_of(held),)), deliveries=deliveries)])


def test_a_payload_uploaded_past_the_service_is_paid(market: MarketFixture) -> None:
    worker = find_uploader(market)
    assert httpx.put(door(market, worker), content=worker.newest().payload).is_success
    assert market.earned() == {}
    report_upload(market, worker)
    assert market.task().state == TaskState.ACCEPTED
    assert market.context.blobs.read(market.task().payload) == worker.newest().payload
    assert market.earned() == {worker.address: PRICE for worker in market.workers}
    check_books(market)


def test_a_repeated_report_of_an_upload_changes_nothing(market: MarketFixture) -> None:
    worker = find_uploader(market)
    httpx.put(door(market, worker), content=worker.newest().payload)
    report_upload(market, worker)
    report_upload(market, worker)
    assert market.earned() == {worker.address: PRICE for worker in market.workers}


def test_a_report_without_an_upload_pays_nothing(market: MarketFixture) -> None:
    with pytest.raises(NotFound):
        report_upload(market, find_uploader(market))
    assert market.earned() == {}


def test_other_bytes_than_committed_pay_nothing_and_the_honest_ones_are_then_taken(market: MarketFixture) -> None:
    worker = find_uploader(market)
    payload = worker.newest().payload
    httpx.put(door(market, worker), content=bytes(len(payload)))
    with pytest.raises(Conflict, match="committed was"):
        report_upload(market, worker)
    assert market.earned() == {}
    assert market.replica(worker).state == ReplicaState.AGREE
    worker.upload(worker.newest())
    assert market.task().state == TaskState.ACCEPTED


@pytest.mark.parametrize("change", leave_to_full([-1, 1]))
def test_another_length_pays_nothing(market: MarketFixture, change: int) -> None:
    worker = find_uploader(market)
    payload = worker.newest().payload
    httpx.put(door(market, worker), content=payload[:change] if change < 0 else payload + b"x")
    with pytest.raises(Conflict, match="bytes were put there"):
        report_upload(market, worker)
    assert market.earned() == {}


def test_only_the_asked_worker_has_an_upload_address(market: MarketFixture) -> None:
    for worker in market.workers:
        if not worker.newest().wanted:
            assert answered(market, worker, PollRequest()).uploads == ()
            with pytest.raises(Conflict):
                report_upload(market, worker)
