"""The client: signs in only where it works, bounds answers, waits for a market that is down."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from siwe import SiweMessage
from stranger import Server

from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from gradmarket.market.wire import PollRequest, SignInNonce
from gradmarket.worker.client import Market
from gradmarket.worker.problems import Problem, Unreachable, Untrusted
from gradmarket.worker.signin import Credentials, sign_in
from gradmarket.worker.wallet import Wallet

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
    told = SiweMessage.from_message(request.message)
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


def test_the_names_of_the_loopback_are_one_place_but_ports_are_not() -> None:
    local = NONCE.model_copy(update={"domain": "127.0.0.1:8700", "uri": "http://127.0.0.1:8700/v1/session"})
    assert sign_in(ME, local, "http://localhost:8700").message
    with pytest.raises(Untrusted):
        sign_in(ME, local, "http://localhost:8701")


def test_an_endless_answer_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmarket.worker.client.MAX_ANSWER", 1000)
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(b" " * 1001, media_type="application/json"))
    with pytest.raises(Problem, match="more than 1000 bytes"):
        Market(serve(app)).facts()


@pytest.mark.parametrize("body", [b"{}", b"<html>", b"[1", b'{"chain_id": "one"}'])
def test_an_answer_of_another_shape_is_a_problem(serve: Serve, body: bytes) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(body, media_type="application/json"))
    with pytest.raises(Problem, match="something else"):
        Market(serve(app)).facts()


def test_a_problem_tells_its_status_and_detail(serve: Serve) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: JSONResponse({"title": "No", "detail": "try tomorrow"}, 403))
    with pytest.raises(Problem, match="403: try tomorrow") as found:
        Market(serve(app)).facts()
    assert found.value.status == 403


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    app = FastAPI()
    app.get("/v1/chain")(lambda: Response(status_code=307, headers={"location": "http://127.0.0.1:1/"}))
    with pytest.raises(Problem, match="307"):
        Market(serve(app)).facts()


def test_a_busy_market_is_asked_again_with_growing_pauses(serve: Serve) -> None:
    answers, pauses = [503, 502, 429, 404], list[float]()
    app = FastAPI()
    app.get("/v1/chain")(lambda: JSONResponse({"detail": "soon"}, answers.pop(0)))
    with pytest.raises(Problem, match="404"):
        Market(serve(app), pause=pauses.append).facts()
    assert len(pauses) == 3
    assert pauses[2] > pauses[0] / 2


def test_a_market_that_is_gone_is_given_up_when_told_so() -> None:
    pauses = list[float]()
    with pytest.raises(Unreachable):
        Market("http://127.0.0.1:1", lambda _seconds: len(pauses) < 3, pauses.append).facts()
    assert len(pauses) == 3


def test_a_session_that_is_refused_twice_is_a_problem(serve: Serve) -> None:
    app = FastAPI()
    asked = []
    app.get("/v1/session/nonce")(lambda: asked.append(1) or _nonce(app))
    app.post("/v1/session")(
        lambda: {"token": "t", "address": address_of(KEY), "payout": PAYOUT, "expires_at": "2036-01-01T00:00:00Z"}
    )
    app.post("/v1/work/poll")(lambda: JSONResponse({"detail": "sign in"}, 401))
    app.state.url = serve(app)
    market = Market(app.state.url)
    market.identify(replace(ME))
    with pytest.raises(Problem, match="401"):
        market.poll(PollRequest())
    assert len(asked) == 2


def _nonce(app: FastAPI) -> dict[str, object]:
    place = app.state.url.removeprefix("http://")
    return NONCE.model_copy(update={"domain": place, "uri": f"{app.state.url}/v1/session"}).model_dump()
