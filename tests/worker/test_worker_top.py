"""What a worker's owner is shown: by its own folder, its chain and its market, whether a worker runs or not."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as some
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.messages import Outcome
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, JobId, ReplicaId, ReplicaState, TaskId, Units
from gradmarket.market.views.payment_views import WorkerView
from gradmarket.market.views.trust_views import ReputationView
from gradmarket.market.wire import Lease, OfferFields, SignedVerdict
from gradmarket.worker import durable
from gradmarket.worker import run as session
from gradmarket.worker.journal import Journal
from gradmarket.worker.owner.record_tail import RecordTail, last
from gradmarket.worker.protocol.records import ReplicaRecord
from gradmarket.worker.settings import WorkerSettings
from gradmarket.worker.signals import Signals
from tests.offers import offer
from tests.worker.fake_market import PRICE, FakeMarket, Row, Server, other

REJECTED, SILENT = 2, 3
"""Numbers of the tasks whose answer is rejected, and whose commitment the market never takes."""


@pytest.fixture
def working(
    folder: Path, server: Server, fake_market: FakeMarket, worker_key: PrivateKey, shared_child: None
) -> Iterator[Path]:
    """A worker with two gradients paid, one rejected and one in hand; its folder."""
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
    settings = WorkerSettings(market=server.url, data=folder, wait_s=0.3, max_memory=2**31, leave_s=0)  # type: ignore[arg-type]
    worker = threading.Thread(target=session.run, args=(settings, None, Journal(True, said), signals))
    worker.start()
    until(lambda: shown(folder, server)["rejected"] == 1 and shown(folder, server)["in_hand"])
    yield folder
    signals.leave()
    worker.join(60)


def until(reached: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.2)


def shown(folder: Path, server: Server) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["worker", "top", "--data", str(folder), "--market", server.url, "--json"])
    return json.loads(done.stdout) if done.exit_code == 0 else {"rejected": 0}


def test_a_running_worker_is_shown_with_all_it_earned_and_does(
    working: Path, server: Server, fake_market: FakeMarket, worker_key: PrivateKey
) -> None:
    record = ReputationView(determinism_class="cpu", standing=0.5, passed=3, failed=0, failed_at=None)
    fake_market.record = WorkerView.model_construct(
        payout="", operator="", proven=False, determinism_class="cpu", seen_at=None, joined_at=None, strikes=[],
        barred=True, copies=0, reputation=[record], stakes=[], replicas={},
    )  # fmt: skip
    told = shown(working, server)
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


def test_the_same_is_told_in_words_and_a_strangers_words_control_no_terminal(working: Path, server: Server) -> None:
    said = CliRunner().invoke(app, ["worker", "top", "--data", str(working), "--market", server.url]).stdout
    assert " works." in said
    assert "another answer won [red]?[31m" in said
    assert "\x1b" not in said
    assert "no worker of that address has signed in" in said


def test_a_worker_that_stopped_is_still_shown(working: Path, server: Server) -> None:
    before = shown(working, server)
    server.stop()
    with durable.lock(working.parent / "another"):
        assert durable.in_use(working.parent / "another")
    assert not durable.in_use(working.parent / "another")
    after = shown(working, server)
    assert after["earnings"] == before["earnings"]
    assert "trouble" in after["markets"][0]
    assert after["markets"][0]["trouble"]


def test_a_folder_without_a_worker_is_said_and_not_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["worker", "top", "--data", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "no worker has run" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_look_does_not_keep_a_worker_out(tmp_path: Path) -> None:
    """A look holds the lock for a moment; the worker that starts then waits for it."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            durable.in_use(tmp_path)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            durable.lock(tmp_path).close()
    finally:
        over.set()
        looking.join()


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
            durable.append(path, recorded.model_copy(update={"at": moment}).model_dump_json().encode() + b"\n")
        tail.since(since)
    if cut:
        durable.append(path, b'{"at": 1e9, "market"')
    assert [one.at for one in tail.since(since)] == [moment for moment in moments if moment >= since]
    newest = last(path)
    assert (newest.at if newest else None) == (moments[-1] if moments and not cut else None)
