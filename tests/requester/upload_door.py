"""The HTTP door of a market in which one worker is asked for its payload, and payloads have several pieces."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import httpx

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import TaskState
from gradmarket.market.wire.framing import DIGEST, frame_poll_request, piece_digest, sent_bytes
from gradmarket.market.wire.poll import PayloadPart, PollAnswer, PollRequest
from requester.app import create_app
from requester.blobs._unfinished import BUSY
from requester.features import FEATURES
from requester.serving import build_server_config, open_listener
from requester.store import identities
from tests.kit.prompt_server import PromptServer
from tests.patience import PATIENCE_S, wait_until
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

PIECE = 8
"""Bytes; a payload of these tests has 28: three pieces and a half."""


class Door:
    """The HTTP door of a market in which one worker is asked for its payload."""

    def __init__(self, market: MarketFixture, url: str) -> None:
        self.market, self.url = market, url
        self.asked = next(worker for worker in market.workers if worker.newest().wanted)
        self.other = next(worker for worker in market.workers if not worker.newest().wanted)
        self.payload = self.asked.newest().payload
        self._tokens = {worker.address: self._token(worker) for worker in market.workers}

    def _token(self, worker: SimWorker) -> str:
        with self.market.context.begin() as work:
            return identities.issue_token(work, "worker", worker.address, None, self.market.clock())

    def headers(self, worker: SimWorker | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[(worker or self.asked).address]}"}

    @property
    def place(self) -> str:
        lease = self.asked.newest().lease
        return f"{self.url}/v1/work/payloads/{lease.replica}/{lease.fence}"

    def received(self, worker: SimWorker | None = None) -> int:
        answer = httpx.get(self.place, headers=self.headers(worker))
        assert answer.status_code == 200, answer.text
        return int(answer.json()["received"])

    def coming(self) -> int:
        """Whole payloads that requests are bringing."""
        return len(list((self.market.folder / "blobs" / "incoming").iterdir()))

    def body(self, start: int | None, payload: bytes | None = None) -> bytes:
        """As the worker frames it from byte `start` on, or whole."""
        payload = self.payload if payload is None else payload
        lease = self.asked.newest().lease
        part = PayloadPart(replica=lease.replica, fence=lease.fence, start=start)
        if start is None:
            return frame_poll_request(PollRequest(payloads=(part,), wait_s=0)) + payload
        pieces = [payload[begin : begin + PIECE] for begin in range(start, len(payload), PIECE)]
        sealed = b"".join(piece_digest(piece) + piece for piece in pieces)
        assert len(sealed) == sent_bytes(len(payload), start)
        return frame_poll_request(PollRequest(payloads=(part,), wait_s=0)) + sealed

    def send(self, start: int, payload: bytes | None = None, worker: SimWorker | None = None) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/work/answers",
            content=self.body(start, payload),
            headers=self.headers(worker),
            timeout=PATIENCE_S,
        )

    @contextmanager
    def sending(self, start: int | None, less: int, payload: bytes | None = None) -> Iterator[socket.socket]:
        """A connection on which all but the last `less` bytes of the body are sent; it breaks at the end."""
        body, place = self.body(start, payload), httpx.URL(self.url)
        head = ["POST /v1/work/answers HTTP/1.1", "Host: x", f"Authorization: {self.headers()['Authorization']}"]
        with socket.create_connection((place.host, place.port or 80), timeout=PATIENCE_S) as connection:
            connection.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode())
            connection.sendall(body[: len(body) - less])
            yield connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

    def cut(self, start: int, less: int) -> None:
        """Sends so much, and waits until the service has its whole pieces and has noticed that no more comes."""
        pieces = (sent_bytes(len(self.payload), start) - less) // (PIECE + DIGEST)
        with self.sending(start, less):
            wait_until(lambda: self.received() == start + pieces * PIECE)
        wait_until(lambda: not self.busy())

    def busy(self) -> bool:
        """Whether a request is still bringing it."""
        lease, unfinished = self.asked.newest().lease, self.market.context.blobs.unfinished
        try:
            with (
                suppress(_Looked),
                unfinished.opened(self.asked.address, f"{lease.replica} {lease.fence}", self._there()),
            ):
                raise _Looked
        except Conflict as error:
            return BUSY in str(error)
        return False

    def _there(self) -> int:
        lease = self.asked.newest().lease
        return self.market.context.blobs.unfinished.received(self.asked.address, f"{lease.replica} {lease.fence}")


class _Looked(Exception):
    """Nothing is written, and all is kept."""


@contextmanager
def opened(market: MarketFixture) -> Iterator[Door]:
    """The market's three workers have computed; they commit and reveal, and one is asked."""
    market.commit()
    market.reveal()
    for worker in market.workers:
        worker.receive_answer()
    with served(market) as url:
        yield Door(market, url)


@contextmanager
def served(market: MarketFixture) -> Iterator[str]:
    """The address of the market's HTTP door."""
    with open_listener("127.0.0.1", 0) as listening:
        app = create_app(market.context, nullcontext)
        server = PromptServer(build_server_config(app, market.settings, FEATURES))
        server.start([listening])
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            market.context.notifier.close()
            server.stop()


def accepted(door: Door, answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    assert PollAnswer.model_validate_json(answer.content).refusals == ()
    assert door.market.task().state == TaskState.ACCEPTED
    assert door.market.earned() == {worker.address: PRICE for worker in door.market.workers}
    check_books(door.market)
