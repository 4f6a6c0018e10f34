"""The requester's client against services that lie, fall silent or are not there; and where it looks for its own."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import Damaged, ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import ServerSentEvent, parse_events
from gradmarket.endpoint import Endpoint, find_endpoint
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit
from gradmarket.market.wire.sign_in import ChainFacts
from tests.kit.web_server import serving_by
from tests.patience import wait_for
from tests.shown import shown_job

Answer = Callable[[BaseHTTPRequestHandler], None]
FACTS: dict[str, Any] = {
    "chain_id": 1,
    "genesis": "0x" + "00" * 32,
    "contract": "0x" + "00" * 20,
    "token": "0x" + "00" * 20,
    "instance": "0x" + "00" * 32,
    "signer": "0x" + "00" * 20,
    "symbol": "GRAD",
    "decimals": 18,
    "unit": "1",
    "rpc": None,
}


@contextmanager
def stranger(answer: Answer) -> Iterator[str]:
    """A service that answers everything with `answer`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if self.raw_requestline and self.parse_request():
                answer(self)
            self.close_connection = True

    with serving_by(Handler) as url:
        yield url


def sends(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def etag(body: bytes) -> str:
    return f'"blake3:{blake3(body).hexdigest()}"'


def test_honest_parameters_arrive(tmp_path: Path) -> None:
    with stranger(sends(b"parameters", ETag=etag(b"parameters"))) as url, RequesterClient(url) as market:
        assert market.download("1", tmp_path / "p") == etag(b"parameters").strip('"')
    assert (tmp_path / "p").read_bytes() == b"parameters"


@pytest.mark.parametrize("headers", [{"ETag": etag(b"others")}, {}])
def test_damaged_parameters_leave_no_file_and_keep_the_old_one(tmp_path: Path, headers: dict[str, str]) -> None:
    (tmp_path / "p").write_bytes(b"old")
    with stranger(sends(b"parameters", **headers)) as url, RequesterClient(url) as market, pytest.raises(Damaged):
        market.download("1", tmp_path / "p")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_download_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    torn = sends(b"half", **{"Content-Length": "8", "ETag": etag(b"half")})
    with stranger(torn) as url, RequesterClient(url) as market, pytest.raises(ServiceUnreachable):
        market.download("1", tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_problem_keeps_its_fields() -> None:
    body = json.dumps({"title": "Bad", "detail": "no", "errors": [{"field": "price", "detail": "less"}]}).encode()
    with stranger(sends(body, 422)) as url, RequesterClient(url) as market, pytest.raises(ServiceProblem) as raised:
        market.submit({})
    assert (raised.value.status, raised.value.detail) == (422, "no")
    assert [(field.name, field.detail) for field in raised.value.fields] == [("price", "less")]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_an_error_that_is_no_problem_document_still_raises_its_status(body: bytes) -> None:
    with stranger(sends(body, 502)) as url, RequesterClient(url) as market, pytest.raises(ServiceProblem) as raised:
        market.chain()
    assert raised.value.status == 502


def test_a_post_is_asked_again_under_its_own_key_and_another_one_under_another() -> None:
    keys: list[str | None] = []

    def deaf_once(request: BaseHTTPRequestHandler) -> None:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) != 1:
            sends(shown_job().model_dump_json().encode())(request)

    with stranger(deaf_once) as url, RequesterClient(url) as market:
        market.steer("1", "pause")
        market.steer("1", "pause")
    assert keys[0] is not None
    assert keys[0] == keys[1] != keys[2]


def test_lists_are_read_to_their_end() -> None:
    jobs = [shown_job(id=str(number)).model_dump(mode="json") for number in range(3)]
    pages = {"/v1/jobs": {"items": jobs[:2], "next": "b"}, "/v1/jobs?cursor=b": {"items": jobs[2:], "next": None}}

    def page(request: BaseHTTPRequestHandler) -> None:
        sends(json.dumps(pages[request.path]).encode())(request)

    with stranger(page) as url, RequesterClient(url) as market:
        assert [job.id for job in market.jobs()] == ["0", "1", "2"]


def test_a_list_without_an_end_is_refused() -> None:
    endless = sends(b'{"items": [], "next": "b"}')
    with stranger(endless) as url, RequesterClient(url) as market, pytest.raises(ServiceProblem, match="empty page"):
        list(market.jobs())


def test_fields_of_a_newer_service_are_ignored() -> None:
    job = shown_job().model_dump(mode="json")
    newer = job | {"added": 1, "costs": job["costs"] | {"added": 1}}
    with stranger(sends(json.dumps(newer).encode())) as url, RequesterClient(url) as market:
        assert market.job("1") == shown_job()
    with stranger(sends(json.dumps(FACTS | {"added": {"a": 1}}).encode())) as url, RequesterClient(url) as market:
        assert market.chain() == ChainFacts.model_validate(FACTS)


def test_a_job_of_a_newer_specification_is_shown_as_it_came_and_not_computed_from() -> None:
    spec = shown_job().spec
    assert isinstance(spec, JobSpec)
    newer = spec.model_dump(mode="json") | {"added": 1}
    publication = {"job": "0" * 16, "spec": newer}
    body = shown_job().model_dump(mode="json") | {"spec": newer, "publication": publication}
    with stranger(sends(json.dumps(body).encode())) as url, RequesterClient(url) as market:
        job = market.job("1")
        with pytest.raises(Refused, match="update gradmarket"):
            market.publication("1")
    assert (job.spec, job.publication) == (newer, publication)
    assert job.model_dump(mode="json", serialize_as_any=True) == body


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>", b'{"chain_id": "one"}'])
def test_an_answer_of_another_shape_is_a_sentence(body: bytes) -> None:
    with stranger(sends(body)) as url, RequesterClient(url) as market, pytest.raises(ServiceProblem) as raised:
        market.chain()
    assert "answered something else" in raised.value.detail
    assert "update gradmarket" in raised.value.detail


def test_watching_goes_on_after_the_last_event_that_came() -> None:
    after: list[str] = []

    def one_at_a_time(request: BaseHTTPRequestHandler) -> None:
        after.append(request.headers["Last-Event-ID"])
        number = int(after[-1]) + 1  # a slow machine may be silent for long enough to be asked again
        request.send_response(200)
        request.end_headers()
        request.wfile.write(f"id: {number}\nevent: round_closed\ndata: {{}}\n\n".encode())
        if number < 3:
            wait_for(silent[number])

    silent, told = {1: threading.Event(), 2: threading.Event()}, list[Any]()
    with stranger(one_at_a_time) as url, RequesterClient(url) as market:
        for event in market.watch("1", silence_s=0.1):
            told.append(event)
            came = [each.id for each in told if each]
            if event is None and came:  # it may be silent before the first event, too
                silent[came[-1]].set()
    assert sorted(set(after)) == ["0", "1", "2"]
    assert [event.id for event in told if event] == [1, 2, 3]
    assert told.count(None) >= 2


@given(
    st.lists(
        st.builds(
            ServerSentEvent,
            st.integers(1, 10**9),
            st.from_regex(r"[a-z_]{1,9}", fullmatch=True),
            st.fixed_dictionaries({"a": st.text()}),
        )
    )
)
def test_events_come_back_as_they_were_sent(events: list[ServerSentEvent]) -> None:
    lines = [": ping", ""]
    for event in events:
        lines += [f"id: {event.id}", f"event: {event.kind}", f"data: {json.dumps(event.body)}", "", ": ping", ""]
    assert list(parse_events(lines)) == events


def test_an_event_that_was_cut_off_is_none() -> None:
    assert list(parse_events(["id: 1", "event: a", "data: {}"])) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GRADMARKET_URL", "GRADMARKET_TOKEN", "GRADMARKET_DATA"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "keys").mkdir()
    (tmp_path / "url").write_text("http://here:1\n")
    (tmp_path / "keys" / "token").write_text("secret\n")
    return tmp_path


def test_the_service_of_this_machine_is_found_with_its_token(folder: Path) -> None:
    assert find_endpoint(data=folder) == Endpoint("http://here:1", "secret")
    assert find_endpoint("http://here:1/", data=folder).token == "secret"


def test_the_folders_token_goes_to_no_other_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_endpoint("http://elsewhere", data=folder) == Endpoint("http://elsewhere", None)
    monkeypatch.setenv("GRADMARKET_URL", "http://elsewhere")
    assert find_endpoint(data=folder) == Endpoint("http://elsewhere", None)


def test_an_option_comes_before_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_URL", "http://elsewhere")
    monkeypatch.setenv("GRADMARKET_TOKEN", "theirs")
    assert find_endpoint(data=folder) == Endpoint("http://elsewhere", "theirs")
    assert find_endpoint("http://third", "mine", folder) == Endpoint("http://third", "mine")


def test_a_missing_service_is_refused_with_the_fix(folder: Path) -> None:
    (folder / "url").unlink()
    with pytest.raises(NotFound, match="nothing is written in") as refused:
        find_endpoint(data=folder)
    assert "gradmarket serve" in refused.value.remedy


@pytest.mark.parametrize(("file", "fault"), [("url", "is not the address"), ("keys/token", "is not an API token")])
def test_a_file_of_other_bytes_is_refused(folder: Path, file: str, fault: str) -> None:
    (folder / file).write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match=fault):
        find_endpoint(data=folder)


@given(st.integers(0, 10**30), st.integers(0, 18))
def test_an_amount_in_words_is_the_amount(amount: int, decimals: int) -> None:
    said, symbol = TokenUnit("GRAD", decimals).text(str(amount)).split(" ")
    whole, _, fraction = said.partition(".")
    assert int(whole + fraction.ljust(decimals, "0")) == amount
    assert symbol == "GRAD"
    assert not fraction.endswith("0")
