"""Two sides and a referee over HTTP, each with its own connection: a lie is found at its operation; silence loses."""

import json
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import httpx
import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import DisputeAnswer, Reply, digest_reply
from gradmarket.market.features.disputes.referee import Referee
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.hearing_messages import SignedRuling
from gradmarket.network.thread_server import serve_in_thread
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from tests.kit.disputes import ANSWER_S, DOMAIN, HONEST, LIAR, OFFER, Lie, build_lie, side_of, terms_of
from tests.kit.traced import SmallTask, parse_step, small_cnn
from tests.market.test_traced import STEPS
from worker import Untrusted
from worker.features.disputes import dispute_commands
from worker.features.disputes.hearing_client import (
    ANSWERS,
    PATH,
    WAIT_S,
    answer_until_ruled,
    ask_referee,
    connect_to_referee,
)
from worker.features.disputes.hearing_room import HearingRoom
from worker.journal import Journal

REFEREE = PrivateKey(b"\3" * 32)
PLACES = [("call", "forward"), ("call", "backward"), ("move", "optimizer"), ("shard", "payload"), ("rows", "")]


@cache
def task() -> SmallTask:
    return small_cnn(parse_step(**STEPS["local"]), "int8")


@cache
def lie_about(kind: str, way: str) -> Lie:
    plan = task().operations.plan
    leaves = [leaf for leaf in range(len(plan)) if plan[leaf].kind == kind and way in plan[leaf].name]
    return next(lie for leaf in leaves if (lie := build_lie(task(), leaf, 0, Random(1))) is not None)


def course() -> PlanCourse:
    return PlanCourse(task().operations.plan)


def redo(leaf: int, inputs: Sequence[bytes]) -> bytes:
    return redo_operation(task().operations, leaf, inputs)


def room_of(lie: Lie, key: PrivateKey = REFEREE) -> tuple[HearingRoom, list[int]]:
    now = [0]
    return HearingRoom(Referee(terms_of(task(), lie), course(), 0), 1, key, lambda: now[0]), now


def careful(side: Side, root: bytes, referee: Address | None = None) -> CarefulSide:
    return CarefulSide(DOMAIN, OFFER, Hash(root), side, course(), referee or address_of(REFEREE))


def stand(url: str, side: CarefulSide) -> SignedRuling:
    transport = connect_to_referee(url, lambda _seconds: False)
    try:
        return answer_until_ruled(transport, side, lambda _text: None)
    finally:
        transport.close()


def test_a_silent_side_loses_when_its_time_is_over() -> None:
    lie = lie_about("move", "optimizer")
    room, now = room_of(lie)
    room.receive(
        careful(side_of(HONEST, task(), task().trace), task().trace.root).answer(PutQuestion.read(room.read_state()))
    )
    now[0] = ANSWER_S + 1
    ruling = room.hold(redo)
    assert (ruling.wrong, ruling.leaf) == ((address_of(LIAR),), None)
    assert "in time" in ruling.why


@pytest.mark.parametrize(("kind", "way"), PLACES)
def test_a_hearing_ends_with_the_liar_named_at_its_operation(
    kind: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lie = lie_about(kind, way)
    room, _ = room_of(lie)
    sides = [
        careful(side_of(HONEST, task(), task().trace), task().trace.root),
        careful(side_of(LIAR, task(), lie.trace), lie.trace.root),
    ]
    with serve_in_thread(room.app(), "127.0.0.1", 0) as url, ThreadPoolExecutor(2) as pool:
        fetched = [pool.submit(stand, url, side) for side in sides]
        ruling = dispute_commands.hold_hearing(room, redo, None, Journal(as_json=True))
        assert [each.result() for each in fetched] == [ruling, ruling]
        room.wait_until_ruling_fetched(0.0)
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["wrong"], told["leaf"]) == ("ruled", [address_of(LIAR)], lie.leaf)
    assert (ruling.wrong, ruling.leaf) == ((address_of(LIAR),), lie.leaf)
    assert task().operations.plan[lie.leaf].name in ruling.why


def test_a_side_whose_opponent_loses_while_it_computes_fetches_the_ruling() -> None:
    room, _ = room_of(lie_about("move", "optimizer"))
    liar = side_of(LIAR, task(), lie_about("move", "optimizer").trace)
    honest = careful(side_of(HONEST, task(), task().trace), task().trace.root)

    def lose(_text: str) -> None:
        """The liar's bytes are no answer to the question."""
        put, said = PutQuestion.read(room.read_state()), b"nonsense"
        dispute = honest.name_dispute(put.sides, put.roots)
        question = put.question.digest(dispute, put.number)
        struct = DisputeAnswer(dispute, liar.address, put.number, question, digest_reply(said))
        room.receive(Reply(liar.address, put.number, said, sign_digest(LIAR, digest_struct(DOMAIN, struct))))
        room.hold(redo)

    with serve_in_thread(room.app(), "127.0.0.1", 0) as url:
        transport = connect_to_referee(url, lambda _seconds: False)
        assert answer_until_ruled(transport, honest, lose).wrong == (address_of(LIAR),)
        transport.close()


def test_nothing_of_a_stranger_is_read_and_spoilt_bytes_count_as_nothing() -> None:
    lie = lie_about("move", "optimizer")
    room, _ = room_of(lie)
    good = careful(side_of(HONEST, task(), task().trace), task().trace.root).answer(PutQuestion.read(room.read_state()))
    headers = {
        "dispute-side": good.side,
        "dispute-number": "0",
        "dispute-said": "0x" + digest_reply(good.said).hex(),
        "dispute-signature": "0x" + good.signature.hex(),
    }
    refused = [
        ({}, good.said, "headers"),
        (headers | {"dispute-number": "one"}, good.said, "headers"),
        (headers | {"dispute-number": "1"}, good.said, "no open question"),
        (headers | {"dispute-side": address_of(REFEREE)}, good.said, "no open question"),
        (headers | {"dispute-signature": "0x" + bytes(65).hex()}, good.said, "v is neither"),
        (headers, good.said + bytes(2**20), "at most"),
        (headers, good.said[:-1] + b"?", "instead of"),
    ]
    with serve_in_thread(room.app(), "127.0.0.1", 0) as url, httpx.Client(base_url=url) as http:
        for given, said, why in refused:
            reply = http.post(ANSWERS, headers=given, content=said)
            assert (reply.status_code, why in reply.json()["detail"]) == (400, True), reply.text
        assert http.get("/v1/dispute", params={"after": "x"}).status_code == 400
        assert http.post(ANSWERS, headers=headers, content=good.said).status_code == 200
        assert "already" in http.post(ANSWERS, headers=headers, content=good.said).json()["detail"]


def test_strangers_that_wait_hold_no_side_up() -> None:
    """More of them than the server has threads, each for as long as one may wait."""
    room, now = room_of(lie_about("move", "optimizer"))
    with serve_in_thread(room.app(), "127.0.0.1", 0) as url, ExitStack() as strangers:
        asked = httpx.URL(url)
        for _ in range(64):
            stranger = strangers.enter_context(socket.create_connection((asked.host, asked.port or 0)))
            asks = f"GET {PATH}?after=9&wait_s={WAIT_S} HTTP/1.1\r\nHost: referee\r\nConnection: close\r\n\r\n"
            stranger.sendall(asks.encode())
        assert httpx.get(url + PATH, timeout=WAIT_S / 2).json()["number"] == 0
        now[0] = ANSWER_S + 1
        room.hold(redo)
        assert b"did not answer in time" in stranger.makefile("rb").read()


def test_an_operation_that_takes_long_holds_up_nobody_that_asks() -> None:
    lie = lie_about("move", "optimizer")
    room, _ = room_of(lie)
    sides = [
        careful(side_of(HONEST, task(), task().trace), task().trace.root),
        careful(side_of(LIAR, task(), lie.trace), lie.trace.root),
    ]
    with serve_in_thread(room.app(), "127.0.0.1", 0) as url, ThreadPoolExecutor(2) as pool:
        asked: list[str] = []

        def redo_asked(leaf: int, inputs: Sequence[bytes]) -> bytes:
            with suppress(httpx.TimeoutException):
                asked.append(httpx.get(url + PATH, timeout=WAIT_S / 2).json()["asked"])
            return redo(leaf, inputs)

        fetched = [pool.submit(stand, url, side) for side in sides]
        assert room.hold(redo_asked).wrong == (address_of(LIAR),)
        assert all(each.result() for each in fetched)
    assert asked == ["values"]


def test_a_ruling_that_the_referee_did_not_sign_is_not_believed() -> None:
    lie = lie_about("move", "optimizer")
    room, now = room_of(lie, LIAR)
    now[0] = ANSWER_S + 1
    room.hold(redo)
    side = careful(side_of(HONEST, task(), task().trace), task().trace.root)
    with serve_in_thread(room.app(), "127.0.0.1", 0) as url:
        with pytest.raises(Untrusted, match="not the referee's"):
            stand(url, side)
        transport = connect_to_referee(url, lambda _seconds: False)
        assert stand(url, replace(side, referee=Address(ask_referee(transport).referee))).wrong
        transport.close()


def test_a_referee_without_wallet_gets_a_key_for_its_hearing_and_a_side_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispute_commands, "COMMAND_WAIT_S", 0.0)
    nowhere = ["--market", "http://127.0.0.1:1", "--data", str(tmp_path)]
    judged = CliRunner().invoke(dispute_commands.app, ["judge", "J", "T", *nowhere])
    assert isinstance(judged.exception, ServiceUnreachable)
    monkeypatch.setattr(dispute_commands, "_find_referee", lambda _url, _key: Address("0x0"))
    answered = CliRunner().invoke(dispute_commands.app, ["answer", "J", "T", "--referee", "http://x", *nowhere])
    assert isinstance(answered.exception, NotFound)
    assert "no wallet in" in str(answered.exception)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["answer", "J", "T", "--referee", "nonsense"], "is not the address of a referee"),
        (["answer", "J", "T", "--referee", "http://127.0.0.1:1"], "no referee answers at"),
        (["judge", "J", "T", "--to", "/proc/none/ruling.json"], "there is no folder /proc/none"),
    ],
)
def test_late_faults_of_a_dispute_command_are_refused_at_its_start(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispute_commands, "COMMAND_WAIT_S", 0.0)
    done = CliRunner().invoke(
        dispute_commands.app, [*arguments, "--market", "http://127.0.0.1:1", "--data", str(tmp_path)]
    )
    assert isinstance(done.exception, Refused)
    assert said in str(done.exception)
    assert done.exception.remedy
