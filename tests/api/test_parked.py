"""Polls that wait for minutes: a waiting worker counts as alive and asking, and a disconnected one does not."""

import json
import socket
import threading
from collections.abc import Collection, Iterator

import httpx
import pytest

from requester.api import long_poll
from requester.api.long_poll import LongPolls
from requester.notifier import ended_topic, worker_topic
from requester.store import workers
from requester.store.tables import Worker
from requester.store.work import Work
from requester.store.workers import LIVE_S
from tests.api.api_service import Service
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until

ASK = {"determinism_class": "cpu", "capacity": 1, "wait_s": 600}


@pytest.fixture(autouse=True, scope="module")
def _often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_poll, "KEEP_S", 0.1)
        yield


def row(service: Service, address: str) -> Worker:
    with service.context.reading() as reader:
        return reader.get_one(Worker, address)


def aged(service: Service, address: str) -> None:
    """As if it had not been heard of for long."""
    with service.context.begin() as work:
        worker = work.get_one(Worker, address)
        worker.seen_at = worker.asking_until = service.context.clock() - 10 * LIVE_S


def is_asking(service: Service, address: str) -> bool:
    found, now = row(service, address), service.context.clock()
    return found.asking_until > now and found.seen_at > now - LIVE_S and found.capacity > 0


def waiting(service: Service, count: int) -> bool:
    return f"gradmarket_long_polls_open {float(count)}" in service.requester.get("/metrics").text.splitlines()


class Polling:
    """A poll on a connection of its own."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        url, body = httpx.URL(service.url), json.dumps(ASK)
        self.socket = socket.create_connection((url.host, url.port), timeout=PATIENCE_S)
        head = f"POST /v1/work/poll HTTP/1.1\r\nHost: x\r\nAuthorization: {client.headers['Authorization']}\r\n"
        rest = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        self.socket.sendall((head + rest).encode())

    def answer(self) -> bytes:
        return self.socket.recv(65536)


@FULL
def test_a_waiting_worker_stays_alive_and_asking_while_its_poll_waits(service: Service) -> None:
    address, client = service.worker()
    poll = Polling(service, client)
    wait_until(lambda: is_asking(service, address))
    assert row(service, address).asking_until <= service.context.clock() + LIVE_S, "no longer than it is vouched for"
    aged(service, address)
    wait_until(lambda: is_asking(service, address))
    poll.socket.close()
    wait_until(lambda: waiting(service, 0))


def test_a_disconnected_worker_stops_asking_at_once_and_its_poll_ends(service: Service) -> None:
    address, client = service.worker()
    poll = Polling(service, client)
    wait_until(lambda: is_asking(service, address) and waiting(service, 1))
    poll.socket.close()
    wait_until(lambda: not is_asking(service, address) and waiting(service, 0))
    other, its = service.worker()
    beside = Polling(service, its)
    wait_until(lambda: is_asking(service, other))
    aged(service, other)
    wait_until(lambda: is_asking(service, other))  # waiting workers were marked once more
    assert not is_asking(service, address)
    beside.socket.close()
    wait_until(lambda: waiting(service, 0))


def test_a_worker_with_an_ended_poll_is_no_longer_asking(service: Service) -> None:
    """A worker that asks once, for a second, would get places for as long as a waiting worker is marked."""
    address, client = service.worker()
    assert client.post("/v1/work/poll", json=ASK | {"wait_s": 1.0}).status_code == 200
    assert not is_asking(service, address)


def test_a_poll_that_ends_during_its_renewal_is_no_longer_asking(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its poll may be written down before the word that it is there, which a thread is still to write."""
    address, client = service.worker()
    assert client.post("/v1/work/poll", json=ASK | {"wait_s": 0.0}).status_code == 200
    polls, mark_present = LongPolls(service.context), workers.mark_present
    polls._polls[address] = 1

    def late(work: Work, here: Collection[str], now: float) -> None:
        polls._polls.clear()
        mark_present(work, here, now)

    monkeypatch.setattr(workers, "mark_present", late)
    polls._mark_present()
    assert not is_asking(service, address)


def test_a_reconnected_worker_still_asks_after_its_old_connection_ends(service: Service) -> None:
    address, client = service.worker()
    old = Polling(service, client)
    wait_until(lambda: waiting(service, 1))
    new = Polling(service, client)
    wait_until(lambda: waiting(service, 2))
    old.socket.close()
    wait_until(lambda: waiting(service, 1))
    assert is_asking(service, address)
    new.socket.close()
    wait_until(lambda: waiting(service, 0))


def test_the_end_of_a_job_that_a_worker_has_an_account_in_ends_its_poll_and_a_mere_ring_does_not(
    service: Service,
) -> None:
    """It may have vouchers to redeem; which it would else think of minutes later."""
    address, client = service.worker()
    poll = Polling(service, client)
    wait_until(lambda: waiting(service, 1))
    other, its = service.worker()
    later = Polling(service, its)
    wait_until(lambda: waiting(service, 2))
    service.context.notifier.notify([worker_topic(address)])
    service.context.notifier.notify([ended_topic(other)])  # rings are heard in their order
    assert b" 200 OK" in later.answer()
    later.socket.close()
    wait_until(lambda: waiting(service, 1))
    service.context.notifier.notify([ended_topic(address)])  # the other half of that ring may be heard long before
    assert b" 200 OK" in poll.answer()
    poll.socket.close()
    wait_until(lambda: waiting(service, 0))


@FULL
def test_many_simultaneous_disconnections_are_all_recorded(service: Service) -> None:
    made = [service.worker() for _ in range(20)]
    polls = [Polling(service, client) for _, client in made]
    wait_until(lambda: waiting(service, len(polls)))
    closing = [threading.Thread(target=poll.socket.close) for poll in polls]
    for thread in closing:
        thread.start()
    wait_until(lambda: waiting(service, 0))
    # the service may be writing just now that they wait, and corrects that itself
    wait_until(lambda: not [address for address, _ in made if is_asking(service, address)])
