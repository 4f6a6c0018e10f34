"""The client: signs in only where it works, bounds answers, waits for a market that is down."""

import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, StreamingResponse

from gradmarket.client import transport
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Digest, JobId, JobState, ReplicaId
from gradmarket.market.views.job_views import JobView, ListedJob
from gradmarket.market.wire.framing import PIECE
from gradmarket.market.wire.poll import PayloadPart, PollAnswer, PollRequest
from gradmarket.market.wire.sign_in import SignInNonce
from gradmarket.network import DownloadFailed, DownloadRefused
from tests.kit.late_module import LateModule
from tests.patience import dawdle
from tests.shown import shown_job
from tests.worker.fake_market import Server
from worker import Untrusted
from worker.protocol.client import Credentials, MarketClient, sign_in
from worker.protocol.outgoing import Payload
from worker.wallet import Wallet

siwe: Any = LateModule("siwe")
KEY = PrivateKey(b"\x01" * 32)
PAYOUT = Address("0x000000000000000000000000000000000000dEaD")
ME = Credentials(Wallet(KEY, Path("wallet.key")), PAYOUT, 31337)
NONCE = SignInNonce(
    nonce="abcdefgh12",
    domain="market.example",
    uri="https://market.example/v1/session",
    chain_id=31337,
    expires_at="2036-01-01T00:00:00Z",
)

Serve = Callable[[FastAPI], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(Server(app)).url


def test_the_message_signs_in_this_worker_with_its_payout_here() -> None:
    request = sign_in(ME, NONCE, "https://market.example")
    told = siwe.SiweMessage.from_message(request.message)
    told.verify("0x" + request.signature.hex(), domain="market.example", nonce="abcdefgh12")
    assert told.address == address_of(KEY)
    assert told.statement == f"Work for gradmarket. Pay out to {PAYOUT}."
    assert told.chain_id == 31337


@pytest.mark.parametrize(
    "changed", [{"domain": "other.example"}, {"uri": "https://other.example/v1/session"}, {"chain_id": 1}]
)
def test_a_market_cannot_have_a_sign_in_for_somewhere_else(changed: dict[str, object]) -> None:
    with pytest.raises(Untrusted):
        sign_in(ME, NONCE.model_copy(update=changed), "https://market.example")


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": "abcdefgh12\nIssued At: 2026-01-01T00:00:00Z\nResources:\n- https://other.example"},
        {"domain": "market.exam\nple"},
        {"domain": "other.example@market.example"},
        {"uri": "https://market.example/v1/session\nVersion: 1\nChain ID: 1"},
        {"expires_at": "2036-01-01T00:00:00Z\nRequest ID: 7"},
        {"expires_at": "never"},
    ],
)
def test_a_market_has_nothing_signed_but_a_sign_in(changed: dict[str, object]) -> None:
    with pytest.raises(Untrusted):
        sign_in(ME, NONCE.model_copy(update=changed), "https://market.example")


def test_the_names_of_the_loopback_are_one_place_but_ports_are_not() -> None:
    local = NONCE.model_copy(update={"domain": "127.0.0.1:8700", "uri": "http://127.0.0.1:8700/v1/session"})
    assert sign_in(ME, local, "http://localhost:8700").message
    with pytest.raises(Untrusted):
        sign_in(ME, local, "http://localhost:8701")


def test_an_endless_answer_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmarket.client.transport.MAX_ANSWER", 1000)
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(b" " * 1001, media_type="application/json"))
    with pytest.raises(ServiceProblem, match="more than 1000 bytes"):
        MarketClient(serve(app)).facts()


def test_an_answer_of_values_beyond_number_is_not_parsed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wrong value takes a kilobyte: 16 MiB of them would take the memory."""
    monkeypatch.setattr("gradmarket.client.transport.MOST_VALUES", 10)
    app = FastAPI()
    app.get("/v1/chain")(lambda: [1] * 20)
    with pytest.raises(ServiceProblem, match="more than 10 values"):
        MarketClient(serve(app)).facts()


def drips(packed: bool) -> Iterator[bytes]:
    """An answer of spaces, a byte at a time; if `packed`, of blocks that hold nothing."""
    packer = zlib.compressobj()
    for _ in range(200):
        yield packer.flush(zlib.Z_FULL_FLUSH) if packed else b" "


@pytest.mark.parametrize("coding", ["identity", "deflate"])
def test_an_answer_that_drips_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch, coding: str) -> None:
    monkeypatch.setattr(transport, "ANSWER_S", -1.0)
    app = FastAPI()
    headers = {"content-encoding": coding}
    app.get("/v1/chain")(lambda: StreamingResponse(drips(coding == "deflate"), headers=headers))
    with pytest.raises(ServiceUnreachable, match="did not end"):
        MarketClient(serve(app), keep_trying=lambda _seconds: False).facts()


def dripping(begins: bytes, drips: bytes) -> str:
    """Origin of a server that answers one request with `begins`, and then with `drips` again and again, for ever."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve_one() -> None:
        with listening, listening.accept()[0] as connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(begins)
            while True:
                connection.sendall(drips)
                dawdle(0.01)

    threading.Thread(target=serve_one, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
DRIPS = {
    "status": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a"),
    "chunk framing": (CHUNKED + b"1", b";"),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a"),
}
"""An answer's beginning, and the bytes that follow for ever; none of them is the body's."""


@pytest.mark.parametrize("where", DRIPS)
@pytest.mark.parametrize("public_only", [False, True])
def test_an_answer_that_drips_outside_of_its_body_is_given_up(
    monkeypatch: pytest.MonkeyPatch, where: str, public_only: bool
) -> None:
    monkeypatch.setattr(transport, "ANSWER_S", 0.3)
    monkeypatch.setattr("gradmarket.network.addresses.is_public", lambda _address: True)
    market = MarketClient(dripping(*DRIPS[where]), keep_trying=lambda _seconds: False, public_only=public_only)
    with pytest.raises(ServiceUnreachable):
        market.facts()


@pytest.mark.parametrize("where", DRIPS)
def test_a_download_that_drips_outside_of_its_bytes_ends_in_its_time(tmp_path: Path, where: str) -> None:
    fetcher = Fetcher(Cache(tmp_path, 2**20), dripping(*DRIPS[where]), 2**20, seconds=0.3)
    with pytest.raises((DownloadFailed, DownloadRefused)):
        fetcher.blob(Digest("blake3:" + "0" * 64))


@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_that_does_not_unpack_is_no_answer(serve: Serve, status: int) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(b"plain", status, headers={"content-encoding": "gzip"}))
    with pytest.raises(ServiceUnreachable, match="decompressing"):
        MarketClient(serve(app), keep_trying=lambda _seconds: False).facts()


def endless(asked: list[int], text: str = "") -> FastAPI:
    """A market whose list of audits has no end; each page names the task `t-` and its number."""
    app = FastAPI()

    @app.get("/v1/jobs/a/audits")
    def page(cursor: int = 0) -> dict[str, object]:
        asked.append(cursor)
        return {"items": [{"task": f"t-{cursor}", "text": text}], "next": str(cursor + 1) if cursor < 99 else None}

    return app


def test_a_list_is_read_only_as_far_as_it_is_searched(serve: Serve) -> None:
    asked = list[int]()
    audits = MarketClient(serve(endless(asked))).audits(JobId("a"))
    assert next(audit.task for audit in audits if audit.task == "t-2") == "t-2"
    assert asked == [0, 1, 2]


def test_the_bytes_of_a_list_are_bounded_over_all_its_pages(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.protocol.client.MAX_LISTING", 3500)
    asked = list[int]()
    with pytest.raises(ServiceProblem, match="more than 3500 bytes"):
        list(MarketClient(serve(endless(asked, "x" * 1000))).audits(JobId("a")))
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize("body", [b"{}", b"<html>", b"[1", b'{"chain_id": "one"}'])
def test_an_answer_of_another_shape_is_a_problem(serve: Serve, body: bytes) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(body, media_type="application/json"))
    with pytest.raises(ServiceProblem, match="something else"):
        MarketClient(serve(app)).facts()


def test_a_problem_raises_its_status_and_detail(serve: Serve) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: JSONResponse({"title": "No", "detail": "try tomorrow"}, 403))
    with pytest.raises(ServiceProblem, match="403: try tomorrow") as found:
        MarketClient(serve(app)).facts()
    assert found.value.status == 403


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(status_code=307, headers={"location": "http://127.0.0.1:1/"}))
    with pytest.raises(ServiceProblem, match=r"307: http.* leads on to http://127.0.0.1:1/") as found:
        MarketClient(serve(app)).facts()
    assert "the address there" in found.value.remedy


def test_a_busy_market_is_asked_again_with_growing_pauses(serve: Serve) -> None:
    answers, pauses = [503, 502, 429, 404], list[float]()
    app = FastAPI()
    app.get("/v1/chain")(lambda: JSONResponse({"detail": "soon"}, answers.pop(0)))
    with pytest.raises(ServiceProblem, match="404"):
        MarketClient(serve(app), pause=pauses.append).facts()
    assert len(pauses) == 3
    assert pauses[2] > pauses[0] / 2


def test_a_lost_market_is_given_up_once_trying_ends() -> None:
    pauses = list[float]()
    with pytest.raises(ServiceUnreachable):
        MarketClient("http://127.0.0.1:1", lambda _seconds: len(pauses) < 3, pauses.append).facts()
    assert len(pauses) == 3


@pytest.mark.parametrize("token", ["t\r\nx: y", "\u00e9", "", "t" * 5000])
def test_a_session_s_token_is_one_word(serve: Serve, token: str) -> None:
    app = FastAPI()
    app.get("/v1/session/nonce")(lambda: _nonce(app))
    told = {"token": token, "address": address_of(KEY), "payout": PAYOUT, "expires_at": "2036-01-01T00:00:00Z"}
    app.post("/v1/session")(lambda: told)
    app.state.url = serve(app)
    market = MarketClient(app.state.url)
    market.identify(ME)
    with pytest.raises(ServiceProblem, match="something else \\(token"):
        market.bearer()


def test_a_session_that_is_refused_twice_is_a_problem(serve: Serve) -> None:
    app = FastAPI()
    asked = []
    app.get("/v1/session/nonce")(lambda: asked.append(1) or _nonce(app))
    app.post("/v1/session")(
        lambda: {"token": "t", "address": address_of(KEY), "payout": PAYOUT, "expires_at": "2036-01-01T00:00:00Z"}
    )
    app.post("/v1/work/poll")(lambda: JSONResponse({"detail": "sign in"}, 401))
    app.state.url = serve(app)
    market = MarketClient(app.state.url)
    market.identify(replace(ME))
    with pytest.raises(ServiceProblem, match="401"):
        market.poll(PollRequest())
    assert len(asked) == 2


def _nonce(app: FastAPI) -> dict[str, object]:
    place = app.state.url.removeprefix("http://")
    return NONCE.model_copy(update={"domain": place, "uri": f"{app.state.url}/v1/session"}).model_dump()


class Cutting:
    """A proxy that ends waits of more than `most` seconds: 504, or the connection breaks; it waits for no time."""

    def __init__(self, most: float, status: int | None) -> None:
        self.waits = list[float]()
        self.app = FastAPI()
        self.app.get("/v1/session/nonce")(lambda: _nonce(self.app))
        told = {"token": "t", "address": address_of(KEY), "payout": PAYOUT, "expires_at": "2036-01-01T00:00:00Z"}
        self.app.post("/v1/session", status_code=201)(lambda: told)

        @self.app.post("/v1/work/poll")
        async def poll(said: PollRequest) -> Response:
            """As the market's own door, but for the proxy."""
            self.waits.append(said.wait_s)
            if said.wait_s > most:
                return Response(status_code=status) if status else Broken()
            return Response(PollAnswer(waiting="nothing to do").model_dump_json())


class Broken(Response):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Promises bytes that never come."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})


@pytest.mark.parametrize("status", [504, None])
def test_a_client_whose_polls_are_cut_off_waits_shorter_for_a_while(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr(transport, "CUT_AFTER_S", 0.0)
    monkeypatch.setattr(transport, "SHORTEST_WAIT_S", 0.05)
    cutting = Cutting(300.0, status)
    cutting.app.state.url = serve(cutting.app)
    market = MarketClient(cutting.app.state.url, keep_trying=lambda _seconds: False)
    market.identify(ME)
    long = PollRequest(wait_s=600.0)
    assert market.poll(long).waiting == "nothing to do"
    assert market.poll(long).waiting == "nothing to do"
    first, *shorter = cutting.waits
    assert first == 600.0
    assert len(shorter) == 2
    assert all(0.05 <= wait <= 300.0 for wait in shorter)
    monkeypatch.setattr(market, "_short_until", 0.0)
    assert market.poll(long).waiting == "nothing to do"
    assert cutting.waits[3] == 600.0, "it is tried again"


def test_a_poll_that_breaks_at_once_is_a_market_that_is_down(serve: Serve) -> None:
    cutting = Cutting(0.0, 504)
    cutting.app.state.url = serve(cutting.app)
    market = MarketClient(cutting.app.state.url, lambda _seconds: len(cutting.waits) < 3, lambda _seconds: None)
    market.identify(ME)
    with pytest.raises(ServiceUnreachable):
        market.poll(PollRequest(wait_s=600.0))
    assert cutting.waits == [600.0] * 3


def test_the_worker_s_connections_are_kept_alive_too(serve: Serve) -> None:
    app = FastAPI()
    app.get("/v1/jobs/{job}")(lambda job: {"id": job, "state": "running"})
    market = MarketClient(serve(app))
    market.job(JobId("a"))
    (pool,) = market._transport._http._transport._pools.values()  # type: ignore[attr-defined]
    (connection,) = pool.connections
    ours = connection._connection._network_stream.get_extra_info("socket")
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_job_of_a_newer_specification_hides_no_other(serve: Serve) -> None:
    newer = {"id": "b", "state": "running", "publication": {"job": "0" * 16, "added": 1}}
    app = FastAPI()
    app.get("/v1/jobs")(lambda: {"items": [newer, {"id": "a", "state": "running", "added": 1}], "next": None})
    assert [(job.id, job.publication) for job in MarketClient(serve(app)).jobs()] == [("b", None), ("a", None)]


def test_a_worker_s_view_of_a_job_is_part_of_the_service_s() -> None:
    job = ListedJob.model_validate_json(shown_job().model_dump_json())
    assert (job.id, job.name, job.state, job.chain_job) == ("0123456789abcdef", "digits", JobState.FINISHED, 1)
    assert ListedJob.model_fields.keys() <= JobView.model_fields.keys()


def test_a_market_with_varying_upload_lengths_does_not_hold_a_worker(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It breaks each request off: only more received bytes than ever before are a reason to go on for longer."""
    monkeypatch.setattr(MarketClient, "bearer", lambda _client: {})
    monkeypatch.setattr("worker.protocol.client.AGAIN_S", 0.0)
    (tmp_path / "payload").write_bytes(bytes(3 * PIECE))
    app, told = FastAPI(), cycle((2 * PIECE, 0, PIECE))
    app.post("/v1/work/answers")(lambda: Response(status_code=503))
    app.get("/v1/work/payloads/r/1")(lambda: {"received": next(told)})
    tries = count()
    client = MarketClient(serve(app), keep_trying=lambda seconds: seconds < 0.5 and next(tries) < 1000)
    part = PayloadPart(replica=ReplicaId("r"), fence=1, start=0)
    with pytest.raises(ServiceUnreachable):
        client.poll(PollRequest(payloads=(part,)), [Payload(tmp_path / "payload", lambda: None, part)])
    assert next(tries) < 1000


def test_a_command_waits_for_less_than_its_seconds() -> None:
    going_on = transport.keep_trying_for(2.0)
    assert (going_on(0.0), going_on(1.9), going_on(2.0)) == (True, True, False)
