"""A worker's own part in an upload that breaks off: its client, and its files after it was killed."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.terms import ReplicaState
from gradmarket.market.wire.framing import HEAD
from gradmarket.market.wire.poll import PayloadPart, PollRequest
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_for, wait_until
from tests.requester.market_fixture import MarketFixture
from tests.requester.upload_door import PIECE, Door, accepted, opened
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlight, InFlightFolder, SealedAnswer
from worker.protocol.outgoing import Payload

NEVER = 10**9
WORKER = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import PollRequest, UploadRequest
from worker.markets.sending import Sending
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlightFolder

framing.PIECE = int(sys.argv[4])
files = InFlightFolder(Path(sys.argv[2]))
(held,) = files.open()
leasing = SimpleNamespace(may_send=lambda: int(not held.sent), is_at_unpaid_limit=lambda: False)
sending = Sending(SimpleNamespace(), files, leasing, time.time)
sending.record_request(UploadRequest(replica=held.replica, seconds=30))
request = PollRequest(payloads=sending.parts(sending.chosen()), wait_s=0)
client = MarketClient(sys.argv[1])
client.bearer = lambda: {"authorization": sys.argv[3]}
answer = client.poll(request, sending.payloads(request))
assert not answer.refusals, answer
"""


class Relay:
    """Passes one connection after another on to the door; of the next uploads the last `less` bytes do not pass.

    The connection then breaks, once the door has all `pieces` before; with `hangs` it stands still instead.
    """

    def __init__(self, door: Door, hangs: bool = False) -> None:
        self.door, self.hangs = door, hangs
        self.less: list[tuple[int, int]] = []
        self.starts: list[int | None] = []
        """From which byte on each upload came."""
        self.held = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        place = httpx.URL(self.door.url)
        with client, socket.create_connection((place.host, place.port or 80)) as market, suppress(OSError):
            threading.Thread(target=_answers, args=(market, client), daemon=True).start()
            while said := _request(client):
                head, length = said
                if not head.startswith(b"POST /v1/work/answers"):
                    market.sendall(head + client.recv(length, socket.MSG_WAITALL) if length else head)
                    continue
                if not self._upload(client, market, head, length):
                    break
            for end in (client, market):
                end.shutdown(socket.SHUT_RDWR)  # a thread still reads there, and closing alone would not reach it

    def _upload(self, client: socket.socket, market: socket.socket, head: bytes, length: int) -> bool:
        less, there = self.less.pop(0) if self.less else (0, 0)
        body = client.recv(length - less, socket.MSG_WAITALL)
        end = HEAD + int.from_bytes(body[:HEAD], "big")
        self.starts.append(json.loads(body[HEAD:end])["payloads"][0].get("start"))
        market.sendall(head + body)
        if not less:
            return True
        wait_until(lambda: self.door.received() == there)
        self.held.set()
        if self.hangs:
            client.recv(NEVER, socket.MSG_WAITALL)  # until the worker is gone
        return False

    def close(self) -> None:
        self._listening.close()


def _request(client: socket.socket) -> tuple[bytes, int] | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = client.recv(1)
        if not byte:
            return None
        head += byte
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    return head, int(lines.get(b"content-length", 0))


def _answers(market: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := market.recv(65536):
            client.sendall(data)


@pytest.fixture
def door(leased: MarketFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr("gradmarket.market.wire.framing.PIECE", PIECE)
    with opened(leased) as door:
        yield door


@pytest.fixture
def relay(door: Door) -> Iterator[Relay]:
    made = Relay(door)
    yield made
    made.close()


class Signed(MarketClient):
    """Signed in as the worker that is asked."""

    def __init__(self, relay: Relay, tries: float) -> None:
        super().__init__(relay.url, keep_trying=lambda seconds: seconds < tries, pause=lambda _seconds: None)
        self.token = relay.door.headers()["Authorization"]

    def bearer(self) -> dict[str, str]:
        return {"authorization": self.token}


def brought(relay: Relay, folder: Path, tries: float = 20.0, begun: bool = False) -> list[int]:
    """Brings the payload by one call of the client; returns how often its bytes left."""
    door, left = relay.door, list[int]()
    file = folder / "payload"
    file.write_bytes(door.payload)
    lease = door.asked.newest().lease
    part = PayloadPart(replica=lease.replica, fence=lease.fence, start=0)
    payload = Payload(file, lambda: left.append(1), part, begun)
    Signed(relay, tries).poll(PollRequest(payloads=(part,), wait_s=0), [payload])
    return left


def test_one_call_is_enough_though_its_connections_break(relay: Relay, tmp_path: Path) -> None:
    relay.less = [(100, PIECE), (60, 2 * PIECE), (5, 3 * PIECE)]
    brought(relay, tmp_path)
    assert relay.starts == [0, PIECE, 2 * PIECE, 3 * PIECE]
    assert relay.door.market.earned()


def test_a_first_upload_asks_for_no_offset(relay: Relay, tmp_path: Path) -> None:
    brought(relay, tmp_path)
    assert relay.starts == [0]


def test_an_upload_out_of_tries_gives_up_and_resumes_later(relay: Relay, tmp_path: Path) -> None:
    relay.less = [(100, PIECE)]
    with pytest.raises(ServiceUnreachable):
        brought(relay, tmp_path, tries=-1.0)
    brought(relay, tmp_path, begun=True)
    assert relay.starts == [0, PIECE]


@pytest.mark.parametrize("lie", [NEVER, 2**62, 28, 29])
def test_a_market_that_lies_about_what_it_has_gets_no_byte_beyond_the_file(tmp_path: Path, lie: int) -> None:
    file = tmp_path / "payload"
    file.write_bytes(bytes(3 * 2**20))
    payload = Payload(file, lambda: None, PayloadPart(replica="r", fence=1, start=0))  # type: ignore[arg-type]
    rest = payload.from_byte(lie)
    assert rest.start in (0, 3 * 2**20)
    assert sum(map(len, rest.read_chunks())) == (0 if rest.start else 3 * (2**20 + 32))


@FULL
def test_a_worker_that_is_killed_in_the_middle_goes_on_after_its_start(door: Door, tmp_path: Path) -> None:
    relay, lease = Relay(door, hangs=True), door.asked.newest().lease
    files = InFlightFolder(tmp_path)
    salt, sealed = door.asked.newest().salt, bytes(32)
    answer = SealedAnswer(
        salt=salt, root=door.asked.newest().root, sealed=sealed, signature=bytes(65), compute_seconds=1
    )
    state = {"state": ReplicaState.AGREE, "prepared": answer, "promised": True}
    held = InFlight(lease=lease, instance=bytes(32), taken_at=0.0, **state)  # type: ignore[arg-type]
    files.save_payload(held.replica, door.payload)
    files.save(held)
    relay.less = [(5, 3 * PIECE)]
    command = [sys.executable, "-c", WORKER, relay.url, str(tmp_path), door.headers()["Authorization"], str(PIECE)]
    with subprocess.Popen(command) as worker:
        wait_for(relay.held)
        worker.kill()
    wait_until(lambda: not door.busy())
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    relay.close()
    assert relay.starts == [0, 3 * PIECE]
    assert door.market.replica(door.asked).state == ReplicaState.PAYABLE


def test_the_twin_that_nobody_kills_is_paid_alike(door: Door) -> None:
    accepted(door, door.send(0))
