"""The market's page finds jobs among many; the form's plan is checked as a job that is posted."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from requester.features.answer_cache import Recent, Share
from requester.features.pages import market_page
from tests.api.api_service import Service
from tests.api.conftest import JOB

Posted = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def unhurried(service: Service) -> Iterator[None]:
    """Strangers' share of the time for pages is that of these tests alone, and lasts for all of them."""
    state = service.app.state
    before = {name: getattr(state, name) for name in ("rendered", "pays", "standings")}
    for name in before:
        setattr(state, name, Recent[Any](Share(pause=0.0)))
    yield
    for name, cache in before.items():
        setattr(state, name, cache)


def shown(service: Service, token: str | None = None, **query: Any) -> tuple[list[str], str]:
    """(ids of the jobs on the market's page, its text)."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    text = httpx.get(f"{service.url}/page/market", params=query, headers=headers).text
    return re.findall(r'<th scope="row"><a href="/jobs/(\w+)"', text), text


def test_jobs_are_found_by_name_id_state_and_token(service: Service, posted: Posted) -> None:
    told, other = posted(name="Blue 100% whale")["id"], posted(name="red fox")["id"]
    service.requester.post(f"/v1/jobs/{other}/cancel")
    assert shown(service, q="blue")[0] == [told]
    assert shown(service, q="100%")[0] == [told]
    assert shown(service, q="%__")[0] == []
    assert shown(service, q=told[:12])[0] == [told]
    assert shown(service, q="red", state="cancelled")[0] == [other]
    assert shown(service, q="red", state="running") == ([], shown(service, q="red", state="running")[1])
    assert "No job is like that" in shown(service, q="green")[1]


def test_my_jobs_are_those_of_the_token_that_is_sent(service: Service, posted: Posted) -> None:
    told = posted(name="mine alone")["id"]
    mine, worker = shown(service, service.token, q="mine alone", mine=True), service.worker()[1]
    assert mine[0] == [told]
    for token in (None, "nonsense", worker.headers["authorization"].removeprefix("Bearer ")):
        assert shown(service, token, q="mine alone", mine=True)[0] == []
    made = service.requester.post("/v1/tokens", json={"name": "another", "role": "submit"}).json()
    assert shown(service, made["token"], q="mine alone", mine=True)[0] == []


def test_more_jobs_than_a_page_holds_are_on_the_next(
    service: Service, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market_page, "JOBS", 2)
    ids = [posted(name="one of three")["id"] for _ in range(3)]
    first, text = shown(service, q="one of three")
    assert "1 to 2 of 3 jobs" in text
    assert re.findall(r'href="/\?([^"]+)" rel="(\w+)"', text) == [("q=one+of+three&amp;page=2", "next")]
    second, text = shown(service, q="one of three", page=2)
    assert sorted(first + second) == sorted(ids)
    assert "3 to 3 of 3 jobs" in text
    assert "There are 2 pages" in shown(service, q="one of three", page=3)[1]
    assert httpx.get(f"{service.url}/", params={"page": 0}).status_code == 404


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "Costs at most"),
        ({"price": "0.01 GRAD", "replication": {"name": "fixed", "replicas": 3, "max_replicas": 5}}, "0.15 GRAD"),
        ({"price": "0.01 EUR"}, r'data-fault="price"'),
        ({"model": {"architecture": "mpl"}}, r'data-fault="model\.architecture".*mlp'),
        ({"model": {"architecture": "mlp", "arguments": {"hiden": [4]}}}, r'data-fault="model\.arguments'),
        ({"optimizer": {"name": "sdg", "lr": 0.1}}, r'data-fault="optimizer\.name"'),
        ({"budget": "4000000000"}, r'class="warning">The budget of 0.000000004 GRAD does not pay for all rounds'),
        ({"budget": "12000000000"}, r'class="warning">.* pays for all rounds if nobody disagrees, and not for'),
        ({"budget": "1"}, r'data-fault="budget".*it pays for no round'),
        ({"rounds": "many"}, r'data-fault="rounds"'),
        ({"data": {"manifest": "blake3:" + "0" * 64}}, r'data-fault="data\.manifest".*upload it first'),
    ],
)
def test_the_form_s_plan_agrees_with_posting(service: Service, changed: dict[str, Any], said: str) -> None:
    answer = service.requester.post("/page/plan", json={**JOB, **changed})
    assert re.search(said, answer.text, re.DOTALL), answer.text
    posts = service.requester.post("/v1/jobs", json={**JOB, **changed}).status_code
    assert (posts == 201) == ("Costs at most" in answer.text)


def test_a_token_for_the_page_comes_as_an_address_that_a_browser_keeps_to_itself(service: Service) -> None:
    options = ["--market", service.url, "--token", service.token]
    done = CliRunner().invoke(app, ["token", "page", *options])
    assert done.exit_code == 0, done.stderr
    address, _, token = done.stdout.splitlines()[-1].partition("#token=")
    assert address == f"{service.url}/submit"
    assert service.client(token).post("/page/plan", json=JOB).status_code == 200
    assert service.client(token).get("/v1/tokens").status_code == 403
