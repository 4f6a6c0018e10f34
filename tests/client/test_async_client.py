"""The asynchronous client is made of the synchronous one, and works and refuses as it does, several at once."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gradmarket.client import AsyncRequesterClient, RequesterClient
from gradmarket.client.client_errors import Damaged, ServiceProblem, ServiceUnreachable
from gradmarket.market.errors import Refused
from gradmarket.market.terms import JobId, blob_digest
from tests.kit.asynchronous import TARGET, make_client
from tests.network.servers import certified, serving
from tests.patience import PATIENCE_S
from worker.protocol.client import MarketClient

WEBHOOK = {"token": "alice", "url": "https://hooks.example", "happenings": [], "created_at": None,
           "delivered_at": None, "waiting": 0, "trouble": ""}  # fmt: skip
PRICES = {"paid": ["7", "9"], "taken": ["7"]}


class Script:
    """The service's answers, by the request's first words; records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.meeting: threading.Barrier | None = None

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append((method, target, body))
        if self.meeting is not None:
            self.meeting.wait(PATIENCE_S)
        if target == "/v1/prices":
            return 200, json.dumps(PRICES).encode()
        if target.startswith("/v1/webhooks"):
            last = "cursor=2" in target
            page = {"items": [WEBHOOK | {"id": "b" if last else "a"}], "next": None if last else "2"}
            return 200, json.dumps(page).encode()
        if target.startswith("/v1/tokens/bob"):
            return 422, json.dumps({"title": "Unprocessable", "detail": "a_day: no amount", "remedy": "write"}).encode()
        if target.startswith("/v1/jobs/one/events"):
            return 200, b': open\n\nid: 7\nevent: paused\ndata: {"reason": "why"}\n\n'
        if target.startswith("/v1/blobs/") and method != "HEAD":
            return (201, b"") if method == "PUT" else (200, b"other bytes")
        return 404, b"{}"


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script.answer) as url:
        yield url


Both = tuple[Callable[[RequesterClient], Any], Callable[[AsyncRequesterClient], Any]]
DIGEST = blob_digest(b"those that were asked for")
CALLS: dict[str, Both] = {
    "prices": (lambda market: market.prices(), lambda market: market.prices()),
    "webhooks": (lambda market: list(market.webhooks()), lambda market: _listed(market.webhooks())),
    "events": (lambda market: list(market.watch("one")), lambda market: _listed(market.watch("one"))),
    "upload": (lambda market: market.upload(b"bytes"), lambda market: market.upload(b"bytes")),
    "refused": (lambda market: market.limit_spending("bob", "x"), lambda market: market.limit_spending("bob", "x")),
    "damaged": (lambda market: market.blob(DIGEST), lambda market: market.blob(DIGEST)),
    "missing": (lambda market: market.job("two"), lambda market: market.job("two")),
    "no file": (
        lambda market: market.download("two", Path("never")),
        lambda market: market.download("two", Path("never")),
    ),
}


async def _listed(source: Any) -> list[Any]:
    return [each async for each in source]


def outcome(call: Callable[[], Any]) -> object:
    """Returns its result or its error."""
    try:
        return call()
    except (ServiceProblem, ServiceUnreachable, Damaged) as error:
        return type(error), str(error), error.remedy


def run_call(url: str, call: Callable[[AsyncRequesterClient], Any]) -> Any:
    async def run() -> Any:
        async with AsyncRequesterClient(url, "secret") as market:
            return await call(market)

    return asyncio.run(run())


def test_the_committed_asynchronous_client_is_current() -> None:
    assert TARGET.read_text() == make_client(), "python -m tests.kit.asynchronous writes it"


@pytest.mark.parametrize("name", CALLS)
def test_both_send_the_same_and_come_to_the_same(name: str, url: str, script: Script) -> None:
    plain, waiting = CALLS[name]
    with RequesterClient(url, "secret") as market:
        expected = outcome(lambda: plain(market))
    asked, script.asked = script.asked, []
    assert outcome(lambda: run_call(url, waiting)) == expected
    assert script.asked == asked
    assert not Path("never.part").exists()


def test_a_token_of_another_name_is_not_revoked(url: str, script: Script) -> None:
    """An address ends at # and ?: unquoted, this one would be that of ci."""
    for name in ("ci#old", "ci?old", "ci/old"):
        with RequesterClient(url, "secret") as market, pytest.raises(ServiceProblem):
            market.revoke_token(name)
    assert {method for method, _, _ in script.asked} == {"DELETE"}
    assert [target for _, target, _ in script.asked] == [f"/v1/tokens/ci%{code}old" for code in ("23", "3F", "2F")]


def test_an_empty_id_is_refused_before_a_request(url: str, script: Script) -> None:
    cuts: dict[str, Callable[[RequesterClient], object]] = {
        "a job's id is empty": lambda market: market.steer("", "cancel"),
        "a task's id is empty": lambda market: market.task("a", ""),
        "a token's name is empty": lambda market: market.revoke_token(""),
        "a webhook's id is empty": lambda market: market.delete_webhook(""),
    }
    with RequesterClient(url, "secret") as market, closing(MarketClient(url)) as worker:
        for said, cut in cuts.items():
            with pytest.raises(Refused, match=said):
                cut(market)
        with pytest.raises(Refused, match="a job's id is empty"):
            worker.job(JobId(""))
        with pytest.raises(Refused, match="a task's id is empty"):
            worker.task(JobId("a"), "")
    assert script.asked == []


def test_an_unreachable_service_raises_the_same_error_in_both_clients() -> None:
    nowhere = "http://127.0.0.1:9"
    with RequesterClient(nowhere) as market:
        kind, said, _remedy = outcome(market.prices)  # type: ignore[misc]
    found = outcome(lambda: run_call(nowhere, lambda market: market.prices()))
    assert kind is ServiceUnreachable
    assert isinstance(found, tuple)
    assert found[0] is kind
    assert nowhere in said
    assert nowhere in found[1]


def test_a_certificate_that_nobody_signed_is_refused_by_both(script: Script, tmp_path: Path) -> None:
    """The cheating twin: somebody on the line answers in the market's place, and wants the token."""
    with serving(script.answer, certified(tmp_path)) as url:
        with RequesterClient(url, "secret") as market, pytest.raises(Refused, match="is not trusted") as plain:
            market.prices()
        with pytest.raises(Refused, match="is not trusted") as waiting:
            run_call(url, lambda market: market.prices())
    assert str(waiting.value) == str(plain.value)
    assert script.asked == []


def test_both_go_through_the_environment_s_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    asked = list[str]()

    def answer(method: str, target: str, body: bytes) -> tuple[int, bytes]:
        asked.append(target)
        return 200, json.dumps(PRICES).encode()

    with serving(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        with RequesterClient("http://market.example") as market:
            expected = market.prices()
        assert run_call("http://market.example", lambda market: market.prices()) == expected
    assert asked == ["http://market.example/v1/prices"] * 2


def test_one_thread_asks_several_things_at_once(url: str, script: Script) -> None:
    """The server answers nobody before all four have asked."""
    script.meeting = threading.Barrier(4)

    async def four(market: AsyncRequesterClient) -> list[Any]:
        return list(await asyncio.gather(*(market.prices() for _ in range(4))))

    assert [guide.paid for guide in run_call(url, four)] == [[7, 9]] * 4
