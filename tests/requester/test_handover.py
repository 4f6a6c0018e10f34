"""A payload that passes the service by is held to what one is that does not: its length, its root, its door."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from books import check_books
from bucket import KEYS, s3_server
from market_floor import PRICE, Floor
from market_workers import SimWorker, answered, wants

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.market.wire import PollRequest
from gradmarket.requester import blobs as stores
from gradmarket.requester.settings import Settings
from gradmarket.requester.stages import handover


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def floor(new_floor, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Floor:  # type: ignore[no-untyped-def]
    """Its blobs lie in a bucket; three workers have agreed, and one is asked for the payload."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    made: Floor = new_floor()
    settings = Settings(data=tmp_path, blobs="s3", s3_endpoint=s3, s3_bucket="floor")  # type: ignore[arg-type]
    bucket, before = stores.opened(settings), made.context.blobs
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
        worker.hear()
    return made


def asked(floor: Floor) -> SimWorker:
    return next(worker for worker in floor.workers if worker.newest().wanted)


def door(floor: Floor, worker: SimWorker) -> str:
    (wanted,) = answered(floor, worker, PollRequest()).uploads
    assert wanted.door is not None
    return wanted.door


def say_put(floor: Floor, worker: SimWorker) -> None:
    held = worker.newest()
    want = wants(floor, worker, held.lease.replica, held.lease.fence)
    handover.fetch(floor.context, want, held.lease.fence)


def test_what_was_put_at_the_door_is_paid(floor: Floor) -> None:
    worker = asked(floor)
    assert httpx.put(door(floor, worker), content=worker.newest().payload).is_success
    assert floor.earned() == {}
    say_put(floor, worker)
    assert floor.task().state == TaskState.ACCEPTED
    assert floor.context.blobs.read(floor.task().payload) == worker.newest().payload
    assert floor.earned() == {worker.address: PRICE for worker in floor.workers}
    check_books(floor)


def test_saying_it_twice_changes_nothing(floor: Floor) -> None:
    worker = asked(floor)
    httpx.put(door(floor, worker), content=worker.newest().payload)
    say_put(floor, worker)
    say_put(floor, worker)
    assert floor.earned() == {worker.address: PRICE for worker in floor.workers}


def test_saying_it_without_having_put_it_pays_nothing(floor: Floor) -> None:
    with pytest.raises(NotFound):
        say_put(floor, asked(floor))
    assert floor.earned() == {}


def test_other_bytes_than_committed_pay_nothing_and_the_honest_ones_are_then_taken(floor: Floor) -> None:
    worker = asked(floor)
    payload = worker.newest().payload
    httpx.put(door(floor, worker), content=bytes(len(payload)))
    with pytest.raises(Conflict, match="committed was"):
        say_put(floor, worker)
    assert floor.earned() == {}
    assert floor.replica(worker).state == ReplicaState.AGREE
    worker.upload(worker.newest())
    assert floor.task().state == TaskState.ACCEPTED


@pytest.mark.parametrize("change", [-1, 1])
def test_another_length_pays_nothing(floor: Floor, change: int) -> None:
    worker = asked(floor)
    payload = worker.newest().payload
    httpx.put(door(floor, worker), content=payload[:change] if change < 0 else payload + b"x")
    with pytest.raises(Conflict, match="bytes were put there"):
        say_put(floor, worker)
    assert floor.earned() == {}


def test_only_who_is_asked_has_a_door(floor: Floor) -> None:
    for worker in floor.workers:
        if not worker.newest().wanted:
            assert answered(floor, worker, PollRequest()).uploads == ()
            with pytest.raises(Conflict):
                say_put(floor, worker)
