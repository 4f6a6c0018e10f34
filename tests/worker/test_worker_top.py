"""The owner's view of a worker: by its own folder, its chain and its market, whether a worker runs or not."""

import fcntl
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as some
from playwright.sync_api import expect
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.messages import Outcome
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Digest, JobId, ReplicaId, ReplicaState, TaskId, Units
from gradmarket.market.views.payment_views import WorkerView
from gradmarket.market.views.trust_views import ReputationView
from gradmarket.market.wire.poll import Lease, OfferFields, SignedVerdict
from graphdoc.runner.driver import CardLoad, Management
from tests.chromium import chromium, needs_chromium
from tests.lanes import FULL
from tests.offers import offer
from tests.patience import PATIENCE_S, wait_for_end, wait_until
from tests.worker.fake_market import PRICE, FakeMarket, Row, Server, other
from worker import durable
from worker import run as session
from worker.features.owner_page.elsewhere import Elsewhere
from worker.features.owner_page.own_facts import OwnFacts, OwnFolder, in_use
from worker.features.owner_page.record_tail import RecordTail, load_newest_record
from worker.features.owner_page.sentences import list_own_tables
from worker.journal import Journal
from worker.money import known_chains
from worker.protocol.records import ReplicaRecord
from worker.settings import WorkerSettings
from worker.signals import Signals

REJECTED, SILENT = 2, 3
"""Numbers of the tasks whose answer is rejected, and whose commitment the market never takes."""


@dataclass(frozen=True)
class Working:
    folder: Path
    page: str


@pytest.fixture
def working(
    folder: Path, server: Server, fake_market: FakeMarket, worker_key: PrivateKey, shared_child: None
) -> Iterator[Working]:
    """A worker with two gradients paid, one rejected and one in hand."""
    fake_market.most = 4
    fake_market.job.reserve((address_of(worker_key), 100))
    verdict, reveal, commit = fake_market.verdict, fake_market._reveal, fake_market._commit

    def judged(row: Row) -> SignedVerdict:
        if row.number != REJECTED:
            return verdict(row)
        signed = fake_market.signed_verdict(row, row.state, Outcome.REJECTED, Digest("blake3:" + "07" * 32), 0)
        return other(signed, reason="another answer won [red]\x1b[31m")

    def revealed(said: Any) -> None:
        reveal(said)
        if fake_market.rows[said.replica].number == REJECTED:
            fake_market.rows[said.replica].state = ReplicaState.REJECTED

    fake_market.verdict, fake_market._reveal = judged, revealed  # type: ignore[method-assign]
    fake_market._commit = lambda made: None if fake_market.rows[made.replica].number == SILENT else commit(made)  # type: ignore[method-assign]
    signals, said = Signals(), StringIO()
    soon = {"leave_s": 0, "leave_market_s": 0, "wait_s": 0.3}
    settings = WorkerSettings(market=server.url, data=folder, max_memory=2**31, page=0, **soon)  # type: ignore[arg-type]
    worker = threading.Thread(target=session.run_worker, args=(settings, None, Journal(True, said), signals))
    worker.start()
    wait_until(lambda: shown(folder, server)["rejected"] == 1 and shown(folder, server)["in_hand"])
    (told,) = [json.loads(line) for line in said.getvalue().splitlines() if '"event": "page"' in line]
    yield Working(folder, told["url"])
    signals.leave()
    wait_for_end(worker)


def shown(folder: Path, server: Server) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["worker", "top", "--data", str(folder), "--market", server.url, "--json"])
    return json.loads(done.stdout) if done.exit_code == 0 else {"rejected": 0}


def test_before_the_first_pay_the_market_that_it_joined_is_asked(
    folder: Path, server: Server, fake_market: FakeMarket, worker_key: PrivateKey, shared_child: None
) -> None:
    fake_market.most = 0
    signals = Signals()
    soon = {"leave_s": 0, "leave_market_s": 0, "wait_s": 0.3}
    settings = WorkerSettings(market=server.url, data=folder, max_memory=2**31, **soon)  # type: ignore[arg-type]
    worker = threading.Thread(target=session.run_worker, args=(settings, None, Journal(True, StringIO()), signals))
    worker.start()

    def list_markets() -> list[str]:
        done = CliRunner().invoke(app, ["worker", "top", "--data", str(folder), "--json"])
        told = json.loads(done.stdout) if done.exit_code == 0 else {"markets": []}
        assert told.get("accepted", 0) == 0
        return [one["market"] for one in told["markets"]]

    wait_until(lambda: list_markets() == [server.url])
    signals.leave()
    wait_for_end(worker)


@pytest.mark.parametrize("left", [b"", bytes(40), b'{"https://a.example": 1'], ids=["empty", "zeros", "half"])
def test_a_list_of_markets_that_a_power_cut_left_incomplete_stops_no_worker(tmp_path: Path, left: bytes) -> None:
    (tmp_path / known_chains.MARKETS).write_bytes(left)
    assert known_chains.load_joined_markets(tmp_path) == {}
    known_chains.record_joined_market(tmp_path, "https://b.example", 1)
    assert known_chains.load_joined_markets(tmp_path) == {"https://b.example": 1}


@FULL
def test_a_running_worker_is_shown_with_all_it_earned_and_does(
    working: Working, server: Server, fake_market: FakeMarket, worker_key: PrivateKey
) -> None:
    record = ReputationView(determinism_class="cpu", standing=0.5, passed=3, failed=0, failed_at=None)
    fake_market.record = WorkerView.model_construct(
        payout="", operator="", proven=False, determinism_class="cpu", seen_at=None, joined_at=None, strikes=[],
        barred=True, copies=0, reputation=[record], stakes=[], replicas={},
    )  # fmt: skip
    told = shown(working.folder, server)
    earned = str(2 * PRICE)
    assert (told["address"], told["running"]) == (address_of(worker_key), True)
    assert (told["accepted"], told["rejected"], told["unpaid"]) == (2, 1, 0)
    (sums,) = told["earnings"]
    assert (sums["total"], sums["today"], sums["last_hour"], sums["symbol"]) == (earned, earned, earned, "GRAD")
    (held,) = told["in_hand"]
    assert (held["round"], held["pay"], held["doing"]) == (0, str(PRICE), "sealed, waits for the verdict")
    (rejection,) = told["rejections"]
    assert rejection["reason"].startswith("another answer won")
    assert rejection["evidence"] == f"{server.url}/v1/jobs/{fake_market.publication.job}/tasks/task-{REJECTED}"
    (owed,) = told["unredeemed"]
    assert (owed["amount"], owed["until"]) == (earned, fake_market.job.claim_until)
    (market,) = told["markets"]
    assert (market["barred"], market["records"][0]["passed"], market["trouble"]) == (True, 3, "")
    assert told["troubles"] == []


@FULL
def test_top_prints_the_same_in_words_and_escapes_a_stranger_s_controls(working: Working, server: Server) -> None:
    said = CliRunner().invoke(app, ["worker", "top", "--data", str(working.folder), "--market", server.url]).stdout
    assert " works." in said
    assert "another answer won [red]?[31m" in said
    assert "\x1b" not in said
    assert "it has never seen this worker" in said


@FULL
def test_pay_per_kilowatt_hour_is_the_last_hour_s_over_its_cards_mean_watts(
    working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = {"GPU-3": iter([300.0, 100.0, None, None]), "GPU-5": iter([200.0, None, None, None])}
    monkeypatch.setattr(Management, "read_load", lambda _self, uuid: CardLoad("card", watts=next(drawn[uuid])))
    durable.record_cards(working.folder, {"cuda:3": "GPU-3", "cuda:5": "GPU-5"})
    own, now = OwnFolder(working.folder), time.time()
    told = [own.look(now + after).earnings[0] for after in (0, 10, 20)]
    assert [one.per_kwh for one in told] == [
        str(int(one.last_hour) * 1000 // watts) for one, watts in zip(told, (500, 300, 300), strict=True)
    ]
    assert int(told[0].last_hour) == 2 * PRICE
    last = own.look(now + 7200)
    assert last.earnings[0].per_kwh is None, "no card has told its watts for an hour"
    assert [one.name for one in last.cards] == ["cuda:3 (card)", "cuda:5 (card)"]


def test_a_worker_on_the_processor_shows_no_card_of_its_machine(
    working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Management, "read_load", lambda _self, _uuid: CardLoad("card", watts=300.0))
    durable.record_cards(working.folder, {})
    own = OwnFolder(working.folder).look(time.time())
    assert (own.cards, own.earnings[0].per_kwh) == ((), None)


def test_the_worker_s_page_shows_the_same_and_has_no_controls(
    working: Working, server: Server, fake_market: FakeMarket
) -> None:
    told = shown(working.folder, server)
    facts = httpx.get(f"{working.page}/facts").json()
    assert (facts["address"], facts["earnings"], facts["in_hand"]) == (
        told["address"], told["earnings"], told["in_hand"],
    )  # fmt: skip
    page = httpx.get(working.page)
    assert "another answer won [red]" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "access-control-allow-origin" not in page.headers
    assert not re.search("<(form|button|input)", page.text)
    assert httpx.get(f"{working.page}/assets/page.css").status_code == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert httpx.request(method, working.page).status_code == 405


@FULL
def test_a_page_elsewhere_whose_name_points_here_reads_nothing(working: Working) -> None:
    """DNS rebinding: the browser sends the name that it was given."""
    port = working.page.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
        for path in ("/", "/now", "/facts", "/assets/page.css"):
            answer = httpx.get(working.page + path, headers={"Host": host})
            assert answer.status_code == 400, (host, path)
            assert "GRAD" not in answer.text
    assert httpx.get(f"{working.page}/facts", headers={"Host": f"localhost:{port}"}).status_code == 200


@FULL
def test_the_page_listens_on_this_machine_alone_and_a_taken_port_is_named(
    working: Working, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    port, other_folder = int(working.page.rpartition(":")[2]), tmp_path_factory.mktemp("other")
    addresses = {address[4][0] for address in socket.getaddrinfo(socket.gethostname(), port, family=socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((address, port), timeout=PATIENCE_S)
    arguments = ["--data", str(other_folder), "--market", server.url, "--page", str(port)]
    done = CliRunner().invoke(app, ["worker", "run", *arguments])
    assert done.exit_code == 2
    assert f"port {port} is not free" in done.stderr
    assert "--page" in done.stderr


@FULL
@needs_chromium
def test_the_worker_s_page_is_accessible_fits_a_phone_and_renews_itself(working: Working) -> None:
    with chromium() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(working.page)
            with page.expect_response("**/now"):
                pass
            expect(page.get_by_text("another answer won")).to_be_visible()
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


@FULL
def test_a_worker_that_stopped_is_still_shown(working: Working, server: Server) -> None:
    before = shown(working.folder, server)
    server.__exit__()
    with durable.lock_worker_folder(working.folder / "another"):
        assert in_use(working.folder / "another")
    assert not in_use(working.folder / "another")
    after = shown(working.folder, server)
    assert after["earnings"] == before["earnings"]
    assert "trouble" in after["markets"][0]
    assert after["markets"][0]["trouble"]


def test_top_refuses_a_folder_without_a_worker_and_does_not_make_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["worker", "top", "--data", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "no worker has run" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_look_does_not_keep_a_worker_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look holds the lock for a moment; the worker that starts then waits for it."""
    durable.lock_worker_folder(tmp_path).close()
    with (tmp_path / durable.LOCK).open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(durable, "time", SimpleNamespace(sleep=lambda _seconds: look.close()))
        durable.lock_worker_folder(tmp_path).close()
        assert look.closed, "it has waited"
    assert not in_use(tmp_path)
    durable.lock_worker_folder(tmp_path).close()


@pytest.fixture(scope="module")
def recorded() -> ReplicaRecord:
    lease = Lease(
        replica=ReplicaId("r"), task=TaskId("t"), job=JobId("j"), fence=1, seconds=60.0,
        offer=OfferFields.of(offer(7)), signature=bytes(65),
    )  # fmt: skip
    verdict = SignedVerdict(
        replica=ReplicaId("r"), state=ReplicaState.PAYABLE, outcome=1, root=None, price=Units(7), reason="",
        signature=None,
    )  # fmt: skip
    return ReplicaRecord(
        at=0.0, market="http://m", lease=lease, prepared=None, wave=None, promised=True, uploaded=True, verdict=verdict
    )


@given(moments=some.lists(some.floats(0, 1e9), max_size=40), since=some.floats(0, 1e9), cut=some.booleans())
def test_the_newest_records_are_read_and_what_is_added_later(
    recorded: ReplicaRecord, tmp_path_factory: pytest.TempPathFactory, moments: list[float], since: float, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("records") / "job.jsonl"
    moments = sorted(moments)
    tail, half = RecordTail(path), len(moments) // 2
    for part in (moments[:half], moments[half:]):
        for moment in part:
            durable.append_line(path, recorded.model_copy(update={"at": moment}).model_dump_json().encode() + b"\n")
        tail.since(since)
    if cut:
        durable.append_line(path, b'{"at": 1e9, "market"')
    assert [one.at for one in tail.since(since)] == [moment for moment in moments if moment >= since]
    newest = load_newest_record(path)
    assert (newest.at if newest else None) == (moments[-1] if moments and not cut else None)


def test_cards_are_a_table_and_unknown_values_are_marked() -> None:
    loads = CardLoad("NVIDIA H100", 93, 612.5, 61, 70 << 30), CardLoad("NVIDIA H200")
    facts = OwnFacts(Address("0x" + "11" * 20), "w", 0.0, True, 0, 0, 0, (), (), (), (), loads)
    shown, *_ = list_own_tables(facts, Elsewhere())
    assert shown.rows == [
        ("NVIDIA H100", "93%", "612 W", "61 °C", "70.0 GiB"),
        ("NVIDIA H200", *["not known"] * 4),
    ]
    assert next(list_own_tables(replace(facts, cards=()), Elsewhere())).title == "In hand"
