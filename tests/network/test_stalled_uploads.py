"""When an upload is given up: on a bad line late, and soon where the service keeps its sender going for nothing."""

import json
import math
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

from gradmarket.client import RequesterClient
from gradmarket.client import transport as transport_module
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import GO_ON, LONGEST_PAUSE_S, STALLED_S, Patience, ServiceTransport, keep_trying_for
from gradmarket.market.terms import blob_digest
from gradmarket.market.wire.framing import PIECE, UPLOAD_OFFSET

DATA = bytes(20 * PIECE)
PLACE = "/v1/blobs/some"


class Clock:
    """Stands in for `time` in the transport; `pause` sets it forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(transport_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def build_answer(status: int, body: dict[str, object] | None = None, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(json.dumps(body or {}).encode()))


def upload(
    clock: Clock, received: Callable[[], int], take: Callable[[int, int], httpx.Response], patience_s: float = 0.0
) -> None:
    """Uploads DATA to a service of these answers; `take` is called with the first byte's place and the length."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return build_answer(200, {"received": received()})
        return take(int(request.headers[UPLOAD_OFFSET]), len(request.content))

    patience = Patience(keep_trying_for(patience_s), clock.pause)
    transport = ServiceTransport("http://service", patience, network=httpx.MockTransport(answer))
    transport.put_bytes(PLACE, blob_digest(DATA), DATA)


class BadLine:
    """A line that takes `seconds` for a sixth of the bytes and then breaks; the service is away for a while after."""

    def __init__(self, clock: Clock, seconds: float, away_s: float) -> None:
        self._clock, self._seconds, self._away_s = clock, seconds, away_s
        self.there = 0
        self._away_until = 0.0

    def received(self) -> int:
        if self._clock.now < self._away_until:
            raise httpx.ConnectError("no route")
        return self.there

    def take(self, start: int, length: int) -> httpx.Response:
        assert start == self.there
        self._clock.pause(self._seconds)
        self.there = min(len(DATA), start + len(DATA) // 6)
        if self.there == start + length:
            return build_answer(201)
        self._away_until = self._clock.now + self._away_s
        raise httpx.WriteError("broken pipe")


@pytest.mark.parametrize("away_s", [0.0, STALLED_S / 2])
def test_a_try_that_took_long_and_broke_off_is_gone_on_with(clock: Clock, away_s: float) -> None:
    line = BadLine(clock, 10 * STALLED_S, away_s)
    upload(clock, line.received, line.take)
    assert line.there == len(DATA)


def test_a_service_that_stays_away_is_given_up(clock: Clock) -> None:
    line = BadLine(clock, 10 * STALLED_S, math.inf)
    with pytest.raises(ServiceUnreachable, match="no route"):
        upload(clock, line.received, line.take)
    assert clock.now < 11 * STALLED_S + LONGEST_PAUSE_S


def test_the_error_has_the_bytes_that_are_there(clock: Clock) -> None:
    with pytest.raises(ServiceUnreachable, match=r"5 of 20,971,520 bytes are there") as given_up:
        upload(clock, lambda: 5, lambda _start, _length: build_answer(503))
    assert given_up.value.remedy == GO_ON


@pytest.mark.parametrize("status", [409, 503])
def test_a_service_that_has_one_byte_more_each_time_is_given_up(clock: Clock, status: int) -> None:
    asked = iter(range(10**9))
    with pytest.raises(ServiceUnreachable, match="bytes are there"):
        upload(clock, lambda: next(asked), lambda _start, _length: build_answer(status))
    assert clock.now < STALLED_S + 2 * LONGEST_PAUSE_S


def test_a_service_that_takes_all_and_keeps_nothing_is_given_up(clock: Clock) -> None:
    def swallow(_start: int, _length: int) -> httpx.Response:
        clock.pause(10 * STALLED_S)
        raise httpx.ReadError("reset")

    with pytest.raises(ServiceUnreachable, match="reset"):
        upload(clock, lambda: 0, swallow)
    assert clock.now < 11 * STALLED_S


def test_more_than_all_bytes_are_no_reason_to_go_on_for_ever(clock: Clock) -> None:
    """Nor is patience, which is for a service that is away: with a worker's there is no end."""
    starts = set[int]()

    def refuse(start: int, _length: int) -> httpx.Response:
        starts.add(start)
        return build_answer(409, {"detail": "not from there"})

    with pytest.raises(ServiceUnreachable, match="not from there"):
        upload(clock, lambda: 2**62, refuse, patience_s=math.inf)
    assert starts == {len(DATA)}
    assert clock.now < STALLED_S + 2 * LONGEST_PAUSE_S


def test_a_redirect_is_no_place_to_go_on(clock: Clock) -> None:
    with pytest.raises(ServiceProblem, match="leads on to"):
        upload(clock, lambda: 0, lambda _start, _length: build_answer(307, location="http://other"))
    assert clock.now == 0.0


@pytest.mark.parametrize("length", [100, len(DATA)])
def test_a_line_that_breaks_between_two_files_is_waited_for(clock: Clock, length: int) -> None:
    kept, away = dict[str, bytes](), 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal away
        if away:
            away -= 1
            raise httpx.ConnectError("no route")
        name = request.url.path
        if request.method == "PUT":
            kept[name] = request.content
            return build_answer(201)
        return build_answer(404) if request.method == "HEAD" else build_answer(200, {"received": 0})

    client = RequesterClient("http://service")
    client._transport = ServiceTransport(
        "http://service", Patience(pause=clock.pause), network=httpx.MockTransport(answer)
    )
    client.upload(b"first")
    away = 5
    digest = client.upload(bytes(length))
    away = 5
    client.upload_unserved(bytes(length))
    assert kept[f"/v1/blobs/{digest}"] == bytes(length)
    assert clock.now > 0
