"""An upload that breaks off goes on where it ended, for its own worker alone, over real connections."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.market.wire import framing
from gradmarket.market.wire.framing import DIGEST, PartAddress, frame_poll_request, sent_bytes
from gradmarket.market.wire.poll import PayloadPart, PollAnswer, PollRequest
from requester.blobs.disk import DiskBlobs
from requester.exchange import payload_upload
from requester.exchange.upload_grant import UploadClaim, UploadPace
from tests.lanes import FULL, leave_to_full
from tests.patience import PATIENCE_S, wait_until
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.upload_door import PIECE, Door, accepted, opened


@pytest.fixture
def door(leased: MarketFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    with opened(leased) as door:
        yield door


def refusals(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item.code for item in PollAnswer.model_validate_json(answer.content).refusals]


def test_one_request_is_enough_where_nothing_breaks(door: Door) -> None:
    accepted(door, door.send(0))
    assert door.received() == 0
    assert door.market.context.blobs.read(door.asked.newest().root) == door.payload


@pytest.mark.parametrize(
    ("less", "there"),
    leave_to_full(
        [(1, 3 * PIECE), (4 + DIGEST, 3 * PIECE), (4 + DIGEST + 1, 2 * PIECE), (2 * PIECE + 4 + 3 * DIGEST, PIECE)], 2
    ),
)
def test_whole_pieces_before_a_broken_connection_are_kept(door: Door, less: int, there: int) -> None:
    door.cut(0, less)
    assert door.received() == there
    accepted(door, door.send(there))


@pytest.mark.parametrize("broken", [False, True])
def test_the_pieces_that_came_are_listed_as_those_of_the_whole(door: Door, broken: bool) -> None:
    if broken:
        door.cut(0, sent_bytes(len(door.payload), 2 * PIECE))
    accepted(door, door.send(2 * PIECE if broken else 0))
    assert door.market.context.blobs.pieces(door.asked.newest().root) == framing.join_piece_digests(door.payload)


@FULL
def test_an_upload_may_break_again_and_again(door: Door) -> None:
    for there in range(0, 3 * PIECE, PIECE):
        assert door.received() == there
        with door.sending(there, sent_bytes(len(door.payload), there + PIECE)):
            wait_until(lambda there=there: door.received() == there + PIECE)
        wait_until(lambda: not door.busy())
    accepted(door, door.send(3 * PIECE))


@FULL
def test_all_may_be_there_though_no_answer_came(door: Door) -> None:
    """The service ended after the last byte; a last piece that is shorter than the others comes once more."""
    unfinished = door.market.context.blobs.unfinished
    lease = door.asked.newest().lease
    with suppress(RuntimeError), unfinished.opened(door.asked.address, f"{lease.replica} {lease.fence}", 0) as file:
        file.write(door.payload)
        raise RuntimeError
    assert door.received() == 3 * PIECE
    accepted(door, door.send(3 * PIECE))


def test_a_spoiled_piece_is_refused_at_once_and_those_before_it_are_kept(door: Door) -> None:
    body, place = bytearray(door.body(0)), httpx.URL(door.url)
    second = len(body) - sent_bytes(len(door.payload), PIECE)
    body[second + DIGEST] ^= 1
    head = f"POST /v1/work/answers HTTP/1.1\r\nHost: x\r\nAuthorization: {door.headers()['Authorization']}\r\n"
    with socket.create_connection((place.host, place.port or 80), timeout=PATIENCE_S) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body[: second + 2 * (DIGEST + PIECE)])  # one piece more: it is checked while that comes
        heard = connection.recv(4096)
    assert heard.startswith(b"HTTP/1.1 400"), heard
    assert b"from 8 on" in heard
    wait_until(lambda: not door.busy())
    assert door.received() == PIECE
    assert door.market.task().state == TaskState.UPLOADING
    accepted(door, door.send(PIECE))


@pytest.mark.parametrize("start", leave_to_full([1, PIECE - 1, 3 * PIECE, 28, 29, 10**9, 2**63 - 1]))
def test_an_offset_that_is_not_there_changes_nothing(door: Door, start: int) -> None:
    door.cut(0, sent_bytes(len(door.payload), 2 * PIECE))
    assert door.send(start).status_code in (409, 413)
    assert door.received() == 2 * PIECE
    accepted(door, door.send(2 * PIECE))


@pytest.mark.parametrize("start", leave_to_full([-1, 2**63, 0.5, "0x8"]))
def test_an_offset_that_is_no_number_is_refused(door: Door, start: Any) -> None:
    lease = door.asked.newest().lease
    said = b'{"payloads": [{"replica": "%s", "fence": %d, "start": %s}]}' % (
        lease.replica.encode(), lease.fence, (f'"{start}"' if isinstance(start, str) else str(start)).encode(),
    )  # fmt: skip
    answer = httpx.post(
        f"{door.url}/v1/work/answers", content=len(said).to_bytes(4, "big") + said, headers=door.headers()
    )
    assert answer.status_code == 422


@FULL
def test_pieces_may_be_sent_over_existing_ones(door: Door) -> None:
    for start in (0, PIECE):
        door.cut(start, sent_bytes(len(door.payload), 2 * PIECE))
    assert door.received() == 2 * PIECE
    accepted(door, door.send(0))


def test_other_bytes_than_committed_are_a_conflict_however_they_come_and_are_not_kept(door: Door) -> None:
    door.cut(0, sent_bytes(len(door.payload), 2 * PIECE))
    other = bytes(len(door.payload))
    assert refusals(door.send(2 * PIECE, other)) == ["conflict"]
    assert door.received() == 0
    assert door.market.task().state == TaskState.UPLOADING
    assert door.market.earned() == {}
    accepted(door, door.send(0))


def test_another_worker_learns_nothing_and_continues_nothing(door: Door) -> None:
    door.cut(0, sent_bytes(len(door.payload), 2 * PIECE))
    assert door.received(door.other) == 0
    assert httpx.get(door.place + "0", headers=door.headers(door.other)).json() == {"received": 0}
    assert refusals(door.send(2 * PIECE, worker=door.other)) == ["not_found"]
    assert httpx.get(door.place).status_code == 401
    assert door.received() == 2 * PIECE
    accepted(door, door.send(2 * PIECE))


def test_an_upload_that_was_not_asked_for_keeps_no_bytes(door: Door) -> None:
    """It agreed too: another replica was asked for the same bytes."""
    asked, door.asked = door.asked, door.other
    assert refusals(door.send(0)) == ["conflict"]
    assert door.received() == 0
    door.asked = asked
    accepted(door, door.send(0))


def test_a_piece_after_the_verdict_is_nothing(door: Door) -> None:
    door.cut(0, sent_bytes(len(door.payload), PIECE))
    accepted(door, door.send(PIECE))
    assert door.send(PIECE).status_code == 409
    assert door.received() == 0
    assert refusals(door.send(0)) == [], "the same payload again changes nothing"
    assert door.market.earned() == {worker.address: PRICE for worker in door.market.workers}


def test_a_later_request_goes_on_though_the_one_before_still_seems_to_come(door: Door) -> None:
    """Its connection may be dead without a word, as behind a router that has another address now."""
    with door.sending(0, sent_bytes(len(door.payload), 2 * PIECE)) as connection:
        wait_until(lambda: door.received() == 2 * PIECE)
        accepted(door, door.send(2 * PIECE))
        assert connection.recv(4096).startswith(b"HTTP/1.1 409")


@FULL
def test_a_payload_that_one_request_names_twice_is_not_taken_twice(door: Door) -> None:
    lease = door.asked.newest().lease
    part = PayloadPart(replica=lease.replica, fence=lease.fence)
    body = frame_poll_request(PollRequest(payloads=(part, part), wait_s=0)) + 2 * door.payload
    answer = httpx.post(f"{door.url}/v1/work/answers", content=body, headers=door.headers(), timeout=PATIENCE_S)
    assert answer.status_code == 422, answer.text
    accepted(door, door.send(0))


def test_a_replica_brings_its_payload_by_one_request_at_a_time_in_pieces_or_not(door: Door) -> None:
    with door.sending(None, 1) as first:
        wait_until(lambda: door.coming() == 1)
        with door.sending(None, 1):
            assert first.recv(4096).startswith(b"HTTP/1.1 409")
            wait_until(lambda: door.coming() == 1)
            accepted(door, door.send(0))


@FULL
def test_a_later_request_that_cannot_go_on_ends_none(door: Door) -> None:
    with door.sending(0, sent_bytes(len(door.payload), 2 * PIECE)) as connection:
        wait_until(lambda: door.received() == 2 * PIECE)
        assert door.send(3 * PIECE).status_code == 409
        connection.sendall(door.body(0)[-sent_bytes(len(door.payload), 2 * PIECE) :])
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    accepted(door, door.send(0))


def test_two_processes_do_not_write_one_upload(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requester.api.resumable_uploads.TRIES", 1)
    lease, blobs = door.asked.newest().lease, door.market.another().blobs
    with blobs.continued(door.asked.address, f"{lease.replica} {lease.fence}", 0):
        answer = door.send(0)
    assert answer.status_code == 409
    assert "another request" in answer.text
    accepted(door, door.send(0))


def test_an_upload_goes_on_after_the_service_was_ended(door: Door) -> None:
    door.cut(0, sent_bytes(len(door.payload), 2 * PIECE))
    another = door.market.another()
    lease = door.asked.newest().lease
    kept = another.blobs.unfinished.received(door.asked.address, f"{lease.replica} {lease.fence}")
    assert framing.whole_pieces(kept) == 2 * PIECE


class Bucket(DiskBlobs):
    """A store that gives out addresses, and records their names."""

    def missing_parts(self, name: str, length: int) -> list[PartAddress]:
        return [
            PartAddress(start=start, length=PIECE, address=f"https://store/{name}/{start}")
            for start in range(0, length, PIECE)
        ]


def test_addresses_in_a_store_are_for_the_asked_worker(door: Door, tmp_path: Path) -> None:
    context = replace(door.market.context, blobs=Bucket(tmp_path))
    lease, other = door.asked.newest().lease, door.other.newest().lease
    claim = UploadClaim(door.asked.address, lease.replica, lease.fence)
    assert [part.start for part in payload_upload.missing_parts(context, claim)] == [0, 8, 16, 24]
    for address, its in ((door.other.address, lease), (door.other.address, other)):
        with pytest.raises((NotFound, Conflict)):
            payload_upload.missing_parts(context, UploadClaim(address, its.replica, its.fence))
    accepted(door, door.send(0))
    assert door.market.replica(door.asked).state == ReplicaState.PAYABLE


# the deadline


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes for which the service has looked, when they came, whether the deadline is put off."""
    came, told = UploadPace.count_arrived_bytes, list[int]()

    def noted(pace: UploadPace, length: int) -> None:
        came(pace, length)
        told.append(length)

    monkeypatch.setattr(UploadPace, "count_arrived_bytes", noted)
    return told


def slow(door: Door, looked: list[int], pieces: int, seconds: float) -> None:
    """Sends `pieces` pieces, each after `seconds` of the market's clock."""
    with door.sending(0, sent_bytes(len(door.payload), 0)) as connection:
        body = door.body(0)
        at = len(body) - sent_bytes(len(door.payload), 0)
        for number in range(pieces):
            door.market.clock.now += seconds
            connection.sendall(body[at : at + DIGEST + PIECE])
            at += DIGEST + PIECE
            wait_until(lambda number=number: door.received() == sum(looked) == (number + 1) * PIECE)
            door.market.drive()


def test_a_slow_honest_upload_is_waited_for(door: Door, looked: list[int]) -> None:
    """Its deadline is 10 s; a piece needs 7."""
    slow(door, looked, 3, 7.0)
    wait_until(lambda: not door.busy())
    assert door.market.task().state == TaskState.UPLOADING
    accepted(door, door.send(3 * PIECE))


def test_an_upload_that_stops_halfway_costs_a_strike_after_its_extended_time(door: Door, looked: list[int]) -> None:
    slow(door, looked, 2, 7.0)
    wait_until(lambda: not door.busy())
    given = door.market.task().due_at - door.market.clock()
    assert 0 < given < 10 * 10
    door.market.clock.now += given + 1
    door.market.drive()
    assert door.market.replica(door.asked).state == ReplicaState.WITHHELD
    assert refusals(door.send(2 * PIECE)) == ["too_late"]


def test_an_expired_upload_is_refused_before_its_rest_arrives(door: Door, looked: list[int]) -> None:
    with door.sending(0, sent_bytes(len(door.payload), PIECE)) as connection:
        wait_until(lambda: door.received() == sum(looked) == PIECE)
        door.market.clock.now += 11
        door.market.drive()
        assert door.market.replica(door.asked).state == ReplicaState.WITHHELD
        begin = len(door.body(0)) - sent_bytes(len(door.payload), PIECE)
        connection.sendall(door.body(0)[begin : begin + 2 * (DIGEST + PIECE)])
        assert connection.recv(4096).startswith(b"HTTP/1.1 410")
    assert door.market.earned() == {}


def test_an_upload_too_slow_to_end_gets_no_extension(door: Door, looked: list[int]) -> None:
    before = door.market.task().due_at
    with door.sending(0, sent_bytes(len(door.payload), PIECE)):
        wait_until(lambda: door.received() == sum(looked) == PIECE)
        assert door.market.task().due_at == before
    door.market.clock.now += 11
    door.market.drive()
    assert door.market.replica(door.asked).state == ReplicaState.WITHHELD
