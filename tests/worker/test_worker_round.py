"""One wallet at several markets: named, or found on the chain; a market unlike its announcement is refused by name."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_keys.datatypes import PrivateKey
from fastapi import FastAPI

from contracts import calls, events
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.transactions import execute_call, require_receipt
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.messages import Offer
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, Digest, Units
from gradmarket.market.wire.poll import CommitmentRequest, PollRequest, hash_of
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.addresses import PublicOnly
from tests.kit.web_server import send_page, serving_by
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.patience import wait_for_end, wait_until
from tests.worker.fake_market import FakeMarket, Row, Server, app_of, other
from worker import Untrusted, durable, wallet
from worker import run as session
from worker.features import discovery as announced_markets
from worker.features.discovery import announcements
from worker.features.discovery.announcements import Discovery, check_announcement_matches
from worker.journal import Journal
from worker.markets import market_session
from worker.markets import scheduler as rounds
from worker.protocol.client import MarketClient
from worker.settings import WorkerSettings
from worker.signals import Signals


@dataclass
class Shop:
    """A stranger's market that announced its job on the chain."""

    fake_market: FakeMarket
    server: Server
    block: int


@dataclass
class Street:
    """Markets on one chain, and one worker's key with money reserved at each."""

    ledger: Ledger
    rpc: str
    new_key: NewKey
    publication: Publication
    blobs: dict[Digest, bytes]
    worker: PrivateKey
    markets: list[Shop] = field(default_factory=list)

    def opens(self, price: int, job: str, told: str | None = None, **terms: Any) -> Shop:
        """A market whose job is on-chain with its address, or with `told` instead."""
        spec = JobSpec.model_validate({**self.publication.spec.model_dump(mode="json"), "price": str(price)})
        publication = self.publication.model_copy(update={"job": job, "spec": spec})
        requester, signer = with_money(self.ledger, self.new_key()), self.new_key()
        fake_market = FakeMarket(None, publication, self.blobs, price=Units(price))  # type: ignore[arg-type]
        fake_market.job = OpenedJob(0, self.ledger, requester, signer, hash_of(publication.digest), 0, 0)
        server = Server(app_of(fake_market, self.rpc)).__enter__()
        expiry = self.ledger.block().time + HOUR
        asked = calls.OpenJob(
            Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), hash_of(publication.digest),
            endpoint=told or server.url,
        )  # fmt: skip
        call = calls.open_job(self.ledger.deployment.contract, replace(asked, **terms))
        receipt = require_receipt(execute_call(self.ledger.web3, requester, call))
        (event,) = events.opened(self.ledger, receipt)
        fake_market.job = replace(fake_market.job, id=event.job, expiry=expiry, claim_until=expiry + HOUR)
        if event.deposited:
            fake_market.job.reserve((address_of(self.worker), 200))
        self.markets.append(Shop(fake_market, server, receipt.block))
        return self.markets[-1]


@pytest.fixture
def street(
    anvil: LocalChain, ledger: Ledger, new_key: NewKey, publication: Publication, blobs: dict[Digest, bytes],
    worker_key: PrivateKey, tmp_path: Path,
) -> Iterator[Street]:  # fmt: skip
    durable.write_file_atomically(tmp_path / wallet.PLAIN, worker_key.to_bytes().hex().encode())
    made = Street(ledger, anvil.url, new_key, publication, blobs, worker_key)
    yield made
    for market in made.markets:
        market.server.__exit__()


SILENT = "http://127.0.0.1:9"
Working = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def working(tmp_path: Path, anvil: LocalChain, shared_child: None) -> Working:
    """Runs a worker until `enough` of its lines, or until it is stopped; returns its lines."""

    def work(
        enough: Callable[[list[dict[str, Any]]], bool], leave_s: float = 100, **given: Any
    ) -> list[dict[str, Any]]:
        signals, said = Signals(), StringIO()
        settings = WorkerSettings(data=tmp_path, wait_s=0.3, rpc=anvil.url, max_memory=2**31, leave_s=leave_s, **given)  # type: ignore[arg-type]
        worker = threading.Thread(target=session.run_worker, args=(settings, None, Journal(True, said), signals))
        worker.start()
        wait_until(lambda: not worker.is_alive() or enough(_lines(said)), said.getvalue)
        signals.leave()
        wait_for_end(worker)
        return _lines(said)

    return work


def _lines(said: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.getvalue().splitlines() if line.endswith("}")]


def accepted(lines: list[dict[str, Any]]) -> int:
    return sum(line["event"] == "accepted" for line in lines)


def test_the_better_paying_market_is_asked_first_and_a_silent_one_keeps_nobody_waiting(
    street: Street, working: Working
) -> None:
    poor, rich = street.opens(3, "aaaaaaaaaaaaaaaa"), street.opens(9, "bbbbbbbbbbbbbbbb")
    lines = working(
        lambda said: accepted(said) == 6,
        market=SILENT,
        markets=(poor.server.url, rich.server.url),
    )
    prices = [int(line["price"]) for line in lines if line["event"] == "accepted"]
    assert prices == [9, 9, 9, 3, 3, 3]
    assert any(line["event"] == "resting" and line["market"] == SILENT for line in lines)
    assert lines[-1]["event"] == "summary"
    assert (lines[-1]["accepted"], lines[-1]["earned"], lines[-1]["redeemed"]) == (6, "36", "36")


@FULL
def test_a_payout_address_costs_no_gas_before_something_is_vouchered(
    street: Street, working: Working, new_key: NewKey
) -> None:
    """Anybody can announce a market: naming a payout wherever it joins would cost a worker more than it earns."""
    shop, me, cold = street.opens(5, "aaaaaaaaaaaaaaaa"), address_of(street.worker), address_of(new_key())
    shop.fake_market.most = 0
    working(lambda said: any(line["event"] == "estimate" for line in said), market=shop.server.url, payout=cold)
    assert (street.ledger.nonce(me), street.ledger.payout_of(me)) == (0, me)
    shop.fake_market.most = 1
    working(lambda _said: street.ledger.payout_of(me) == cold, market=shop.server.url, payout=cold, upkeep_s=0.05)
    assert street.ledger.balance(cold) == 5


def resting(lines: list[dict[str, Any]]) -> set[str]:
    return {line["market"] for line in lines if line["event"] == "resting"}


def test_a_market_that_answers_nonsense_ends_nothing_at_the_others(street: Street, working: Working) -> None:
    broken, good = street.opens(9, "aaaaaaaaaaaaaaaa"), street.opens(3, "bbbbbbbbbbbbbbbb")
    broken.fake_market.broken = 10**9
    with Server(FastAPI()) as nothing_there:
        named = (broken.server.url, good.server.url)
        lines = working(lambda said: accepted(said) == 3, market=nothing_there.url, markets=named)
        assert resting(lines) == {nothing_there.url, broken.server.url}
    assert (lines[-1]["event"], lines[-1]["accepted"], lines[-1]["redeemed"]) == ("summary", 3, "9")


@FULL
def test_a_market_that_could_not_be_joined_leaves_nothing_open_and_is_joined_when_it_is_sound(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[MarketClient] = []

    class Counted(MarketClient):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    def done(said: list[dict[str, Any]]) -> bool:
        open_now.append(sum(not market._transport._http.is_closed for market in made))
        return accepted(said) == 6

    open_now: list[int] = []
    monkeypatch.setattr(rounds, "MarketClient", Counted)
    monkeypatch.setattr(rounds, "LOOK_S", 0.2)
    monkeypatch.setattr(rounds, "REST_S", 0.1)
    broken, good = street.opens(9, "aaaaaaaaaaaaaaaa"), street.opens(3, "bbbbbbbbbbbbbbbb")
    broken.fake_market.broken = 3
    assert accepted(working(done, market=broken.server.url, markets=(good.server.url,))) == 6
    assert len(made) == 5
    assert max(open_now) <= 3
    assert open_now[-1] == 2


@FULL
def test_a_market_that_never_opens_its_wave_keeps_no_other_one_from_paying(street: Street, working: Working) -> None:
    """Its replica holds one place of three; the others are worked, revealed, uploaded and paid meanwhile."""
    stuck, good = street.opens(9, "aaaaaaaaaaaaaaaa"), street.opens(3, "bbbbbbbbbbbbbbbb")
    stuck.fake_market.most = 1
    stuck.fake_market._commit = lambda _made: None  # type: ignore[method-assign]
    lines = working(
        lambda said: accepted(said) == 3,
        leave_s=0.5,
        market=stuck.server.url,
        markets=(good.server.url,),
        leases=3,
    )
    assert [line["price"] for line in lines if line["event"] == "accepted"] == ["3", "3", "3"]
    assert len(stuck.fake_market.rows) == 1


@FULL
def test_a_market_whose_polls_fail_takes_no_time_of_the_others(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market_session, "PROBLEM_PAUSE_S", 60.0)
    monkeypatch.setattr(rounds, "PROBLEM_PAUSE_S", 60.0)
    failing, good = street.opens(9, "aaaaaaaaaaaaaaaa"), street.opens(3, "bbbbbbbbbbbbbbbb")
    failing.fake_market.failing = True
    lines = working(lambda said: accepted(said) == 3, market=failing.server.url, markets=(good.server.url,))
    assert accepted(lines) == 3
    assert "problem" in [line["event"] for line in lines]


@FULL
def test_a_voucher_is_redeemed_in_good_time_though_its_only_market_is_silent(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "UPKEEP_S", 0.1)
    shop = street.opens(5, "aaaaaaaaaaaaaaaa")
    shop.fake_market.most = 1
    paid, ledger, me = shop.fake_market.uploaded, street.ledger, address_of(street.worker)

    def uploaded(row: Row) -> None:
        paid(row)
        shop.server.stop()

    shop.fake_market.uploaded = uploaded  # type: ignore[method-assign]
    soon = {"upkeep_s": 2, "redeem_before_s": 3 * HOUR, "leave_market_s": 0.1}
    seen: list[int] = []

    def redeemed(_said: list[dict[str, Any]]) -> bool:
        seen.append(ledger.balance(me))
        return seen[-1] > 0

    working(redeemed, market=shop.server.url, **soon)
    assert seen[-1] == 5


@FULL
def test_at_leaving_too_each_market_has_its_turn(street: Street, working: Working) -> None:
    """The first closes its wave only when the other has paid, and that one only when it hears of the leaving."""
    slow, good = street.opens(9, "aaaaaaaaaaaaaaaa").fake_market, street.opens(3, "bbbbbbbbbbbbbbbb").fake_market
    answer_poll, paid, close, close_slow = good.handle_poll, good.uploaded, good._commit, slow._commit
    early: list[CommitmentRequest] = []
    early_slow: list[CommitmentRequest] = []

    def handle_poll(worker: Address, said: PollRequest, *bring: Callable[[], object]) -> None:
        answer_poll(worker, said, *bring)
        while said.leaving and early:
            close(early.pop())

    def uploaded(row: Row) -> None:
        paid(row)
        close_slow(early_slow.pop())

    slow.most = good.most = 1
    slow._commit, good._commit = early_slow.append, early.append  # type: ignore[method-assign]
    good.handle_poll, good.uploaded = handle_poll, uploaded  # type: ignore[method-assign]
    lines = working(
        lambda _said: bool(early and early_slow),
        market=street.markets[0].server.url,
        markets=(street.markets[1].server.url,),
        leases=2,
    )
    assert (lines[-1]["accepted"], lines[-1]["redeemed"]) == (2, "12")


@FULL
def test_a_market_that_asks_to_sign_in_elsewhere_at_the_end_keeps_no_other_voucher_from_being_redeemed(
    street: Street, working: Working
) -> None:
    false, good = street.opens(9, "aaaaaaaaaaaaaaaa"), street.opens(3, "bbbbbbbbbbbbbbbb")

    def earned(said: list[dict[str, Any]]) -> bool:
        false.fake_market.elsewhere = accepted(said) == 6
        return false.fake_market.elsewhere

    lines = working(earned, market=false.server.url, markets=(good.server.url,))
    assert (lines[-1]["event"], lines[-1]["redeemed"]) == ("summary", "36")


def test_an_only_market_that_asks_to_sign_in_elsewhere_ends_the_work_and_what_it_vouchered_is_redeemed(
    street: Street, anvil: LocalChain, tmp_path: Path, shared_child: None
) -> None:
    shop = street.opens(5, "aaaaaaaaaaaaaaaa")
    paid = shop.fake_market.uploaded

    def uploaded(row: Row) -> None:
        paid(row)
        shop.fake_market.elsewhere = True

    shop.fake_market.uploaded = uploaded  # type: ignore[method-assign]
    settings = WorkerSettings(market=shop.server.url, data=tmp_path, rpc=anvil.url, wait_s=0.3)  # type: ignore[arg-type]
    with pytest.raises(Untrusted, match="elsewhere"):
        session.run_worker(settings, None, Journal(True, StringIO()), Signals())
    assert street.ledger.balance(address_of(street.worker)) == 5


@FULL
def test_an_announcement_that_had_no_place_yet_is_followed_when_there_is_one(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOOK_S", 0.3)
    monkeypatch.setattr(announced_markets, "MOST", 1)
    false = street.opens(9, "aaaaaaaaaaaaaaaa", amount=Units(2000), spec_digest=bytes(32))
    true = street.opens(5, "bbbbbbbbbbbbbbbb")
    lines = working(lambda said: accepted(said) == 3, discover=True, since=false.block)
    assert accepted(lines) == 3
    assert [line["chain_job"] for line in lines if line["event"] == "discovered"] == [true.fake_market.job.id]


class Node(BaseHTTPRequestHandler):
    """Hands requests on to the chain's node, until it answers nonsense."""

    behind, mad = "", False

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b'{"jsonrpc": "2.0", "id": 1, "result": {"number": "soon"}}'
        if not Node.mad:
            answer = httpx.post(Node.behind, content=asked, headers={"Content-Type": "application/json"}).content
        send_page(self, answer)


@pytest.fixture
def node(anvil: LocalChain) -> Iterator[str]:
    Node.behind, Node.mad = anvil.url, False
    with serving_by(Node) as url:
        yield url


@FULL
def test_a_node_that_answers_nonsense_stops_its_own_market_alone(
    street: Street, node: str, tmp_path: Path, shared_child: None
) -> None:
    good = street.opens(5, "aaaaaaaaaaaaaaaa")
    street.rpc = node
    bad = street.opens(9, "bbbbbbbbbbbbbbbb")
    offer, said, signals = bad.fake_market.offer, StringIO(), Signals()

    def offers(number: int) -> tuple[Offer, PrivateKey]:
        Node.mad = True
        return offer(number)

    bad.fake_market.offer = offers  # type: ignore[method-assign]
    paid = good.fake_market.uploaded

    def uploaded(row: Row) -> None:
        paid(row)
        if good.fake_market.earned == 15:
            signals.leave()

    good.fake_market.uploaded = uploaded  # type: ignore[method-assign]
    settings = WorkerSettings(
        market=bad.server.url, markets=(good.server.url,), data=tmp_path, wait_s=0.3, leave_s=5, max_memory=2**31
    )  # type: ignore[arg-type]
    done = session.run_worker(settings, None, Journal(True, said), signals)
    assert (done.finished, Node.mad, street.ledger.balance(address_of(street.worker))) == (True, True, 15)
    assert "is invalid" in said.getvalue()


def test_a_discovered_market_without_paid_work_makes_room_for_another(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOOK_S", 0.3)
    monkeypatch.setattr(announced_markets, "MOST", 1)
    monkeypatch.setattr(announced_markets, "ROOM_S", 0.5)
    idle = street.opens(9, "aaaaaaaaaaaaaaaa", amount=Units(2000))
    idle.fake_market.most = 0
    paying = street.opens(5, "bbbbbbbbbbbbbbbb")
    tokens = (street.ledger.deployment.token,)
    lines = working(lambda said: accepted(said) == 3, discover=True, since=idle.block, tokens=tokens)
    found = [line["chain_job"] for line in lines if line["event"] == "discovered"]
    assert found[:2] == [idle.fake_market.job.id, paying.fake_market.job.id]
    assert idle.fake_market.left
    assert next(line["endpoint"] for line in lines if line["event"] == "made_room") == idle.server.url
    assert accepted(lines) == 3


def test_where_money_is_real_nothing_is_discovered_in_tokens_that_nobody_named(
    tmp_path: Path, anvil: LocalChain, monkeypatch: pytest.MonkeyPatch, shared_child: None
) -> None:
    monkeypatch.setattr(announcements, "LOCAL_CHAIN_IDS", frozenset())
    settings = WorkerSettings(data=tmp_path, discover=True, rpc=anvil.url)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="token of its own"):
        session.run_worker(settings, journal=Journal(stream=StringIO()), signals=Signals())


@FULL
def test_where_more_markets_are_named_than_are_worked_for_at_once_none_is_discovered(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announced_markets, "MOST", 1)
    shops = [street.opens(5, letter * 16) for letter in "ab"]
    street.opens(9, "cccccccccccccccc", amount=Units(2000))
    named = {"market": shops[0].server.url, "markets": (shops[1].server.url,)}
    lines = working(lambda said: accepted(said) == 6, discover=True, since=shops[0].block, **named)
    assert [line for line in lines if line["event"] == "discovered"] == []
    assert accepted(lines) == 6


@FULL
def test_markets_are_found_on_the_chain_alone_and_tried_again_where_they_are_silent(
    street: Street, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOOK_S", 0.5)
    monkeypatch.setattr(rounds, "GIVEN_UP_S", 0.0)
    market = street.opens(5, "aaaaaaaaaaaaaaaa")
    market.fake_market.down = 2
    lines = working(lambda said: accepted(said) == 3, discover=True, since=market.block)
    assert accepted(lines) == 3
    assert [line["chain_job"] for line in lines if line["event"] == "discovered"] == [market.fake_market.job.id]
    assert any(line["event"] == "refused_market" for line in lines)


def test_without_a_node_of_its_own_nothing_is_discovered(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="--rpc"):
        session.run_worker(WorkerSettings(data=tmp_path, discover=True), journal=Journal(stream=StringIO()))


def fetch_market(street: Street, at: Shop) -> tuple[ChainFacts, list[Any]]:
    there = MarketClient(at.server.url)
    try:
        return there.facts(), there.jobs()
    finally:
        there.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"voucher_signer": "0x000000000000000000000000000000000000dEaD"}, "the job's signer is"),
        ({"spec_digest": bytes(32)}, "another specification"),
    ],
)
def test_a_market_that_is_not_what_its_job_announces_is_refused_by_name(
    street: Street, working: Working, change: dict[str, Any], named: str
) -> None:
    market = street.opens(5, "aaaaaaaaaaaaaaaa", **change)
    lines = working(
        lambda said: any(line["event"] == "refused_market" for line in said), discover=True, since=market.block
    )
    refused = [line["text"] for line in lines if line["event"] == "refused_market"]
    assert named in refused[0]
    assert market.fake_market.rows == {}


def test_another_contract_and_an_absent_job_are_named(street: Street) -> None:
    market = street.opens(5, "aaaaaaaaaaaaaaaa")
    facts, jobs = fetch_market(street, market)
    (event,) = Discovery(street.ledger.web3, market.block).look()
    check_announcement_matches(event.event, facts, jobs)
    with pytest.raises(Untrusted, match="runs no job"):
        check_announcement_matches(event.event, facts, [])
    elsewhere = other(facts, contract="0x000000000000000000000000000000000000dEaD")
    with pytest.raises(Untrusted, match="pays by the contract"):
        check_announcement_matches(event.event, elsewhere, jobs)


def test_each_block_is_looked_at_once_and_jobs_without_money_or_time_lead_nowhere(street: Street) -> None:
    market = street.opens(5, "aaaaaaaaaaaaaaaa")
    street.opens(9, "bbbbbbbbbbbbbbbb", amount=Units(0))
    discovery = Discovery(street.ledger.web3, market.block)
    assert [found.endpoint for found in discovery.look()] == [market.server.url]
    assert discovery.look() == []


def test_announcements_beyond_what_one_look_leads_to_wait_for_the_next(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "AT_ONCE", 1)
    small = street.opens(5, "aaaaaaaaaaaaaaaa")
    large = street.opens(5, "bbbbbbbbbbbbbbbb", amount=Units(2000))
    discovery = Discovery(street.ledger.web3, small.block)
    looks = [[found.endpoint for found in discovery.look()] for _ in range(3)]
    assert looks == [[large.server.url], [small.server.url], []]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1"])
def test_a_market_that_nobody_named_is_not_reached_in_the_own_network(street: Street, address: str) -> None:
    """Whatever its name resolves to, at each request anew."""
    http = httpx.Client(transport=PublicOnly(lambda _host, _port: [address]))
    with pytest.raises(httpx.ConnectError, match="not a public address"):
        http.get("http://a-market.example/v1/chain")
    market = street.opens(5, "aaaaaaaaaaaaaaaa")
    hidden = MarketClient(market.server.url, lambda _seconds: False, public_only=True)
    with pytest.raises(ServiceUnreachable, match="not a public address"):
        hidden.facts()
