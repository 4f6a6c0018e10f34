"""The worker as a process: the effects of signals, kill -9 and a job's end on it and on its money."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, ReplicaState
from gradmarket.market.wire.poll import WaveOpened
from tests.lanes import FULL
from tests.onchain import NewKey
from tests.patience import PATIENCE_S, wait_until
from tests.worker.fake_market import FakeMarket, Row, Server

COMMAND = "from gradmarket.cli import app; app()"


@dataclass
class Process:
    popen: subprocess.Popen[str]
    log: Path

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def summary(self) -> dict[str, Any]:
        self.popen.wait(PATIENCE_S)
        assert self.events()[-1]["event"] == "summary", self.log.read_text()
        return self.events()[-1]

    def until(self, reached: Callable[[], object]) -> None:
        wait_until(lambda: reached() or self.popen.poll() is not None, self.log.read_text)
        assert self.popen.poll() is None, self.log.read_text()


Start = Callable[..., Process]


@pytest.fixture
def start(server: Server, fake_market: FakeMarket, folder: Path, worker_key: PrivateKey) -> Iterator[Start]:
    """Starts workers for the market; none outlives the test."""
    fake_market.job.reserve((address_of(worker_key), 100))
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> Process:
        log = folder / f"log-{len(started)}"
        arguments = ["worker", "run", "--market", server.url, "--data", str(folder), "--json", *options]
        environment = {**os.environ, "GRADMARKET_WORKER_LEAVE_S": "600", "GRADMARKET_WORKER_MAX_MEMORY": str(2**31)}
        environment |= {"GRADMARKET_WORKER_UPKEEP_S": "0.5", "GRADMARKET_WORKER_LEAVE_MARKET_S": "1"}
        with log.open("w") as out:
            command = [sys.executable, "-c", COMMAND, *arguments]
            started.append(subprocess.Popen(command, stdout=out, stderr=out, text=True, env=environment))
        return Process(started[-1], log)

    yield begin
    for popen in started:
        popen.kill()
        popen.wait()


def balance(fake_market: FakeMarket, holder: Address) -> int:
    return fake_market.job.ledger.balance(holder)


@FULL
def test_the_first_signal_finishes_redeems_releases_and_prints_the_sums(
    fake_market: FakeMarket, start: Start, worker_key: PrivateKey, new_key: NewKey
) -> None:
    payout = address_of(new_key())
    process = start("--payout", payout)
    process.until(lambda: fake_market.earned == 21)
    process.popen.send_signal(signal.SIGTERM)
    done = process.summary()
    assert process.popen.returncode == 0
    assert (done["accepted"], done["rejected"], done["earned"], done["redeemed"]) == (3, 0, "21", "21")
    assert balance(fake_market, payout) == 21
    account = fake_market.job.ledger.account(fake_market.job.id, address_of(worker_key))
    assert account.reserved == account.withdrawn == 21
    assert fake_market.left
    estimate = next(event for event in process.events() if event["event"] in ("estimate", "leased"))
    assert estimate["event"] == "estimate", "the estimate is told before the first lease"
    assert int(estimate["hourly"]) > 0


@FULL
def test_a_signal_in_the_middle_of_a_task_still_sees_it_paid(fake_market: FakeMarket, start: Start) -> None:
    fake_market.most = 50
    process = start()
    process.until(lambda: fake_market.committed >= 2)
    process.popen.send_signal(signal.SIGINT)
    done = process.summary()
    assert done["finished"]
    assert done["earned"] == done["redeemed"] == str(fake_market.earned)
    assert not [row for row in fake_market.rows.values() if row.state in (ReplicaState.LEASED, ReplicaState.COMMITTED)]


@FULL
def test_killed_at_any_moment_it_goes_on_where_it_was(
    fake_market: FakeMarket, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, paying = fake_market.wave, fake_market.uploaded
    processes: list[Process] = []

    def wave(row: Row) -> WaveOpened:
        """It dies when its commitment has arrived, before it reveals."""
        if row.number == 0 and len(processes) == 1:
            processes[0].popen.kill()
        return opening(row)

    def uploaded(row: Row) -> None:
        """It dies when its payload has arrived, before it gets the result."""
        paying(row)
        if row.number == 1 and len(processes) == 2:
            processes[1].popen.kill()

    monkeypatch.setattr(fake_market, "wave", wave)
    monkeypatch.setattr(fake_market, "uploaded", uploaded)
    for _ in range(2):
        processes.append(start())
        assert processes[-1].popen.wait(PATIENCE_S) == -signal.SIGKILL
    processes.append(start())
    processes[-1].until(lambda: fake_market.earned == 21)
    processes[-1].popen.send_signal(signal.SIGTERM)
    assert processes[-1].summary()["finished"]
    rows = list(fake_market.rows.values())
    assert [row.uploads for row in rows] == [1, 1, 1]
    assert fake_market.job.ledger.account(fake_market.job.id, rows[0].worker).withdrawn == 21


@FULL
def test_the_second_signal_leaves_at_once_and_keeps_the_vouchers(
    fake_market: FakeMarket, start: Start, monkeypatch: pytest.MonkeyPatch, folder: Path, worker_key: PrivateKey
) -> None:
    fake_market.most = 14  # as many as are reserved for it

    def answer_until_paid(worker: Any, said: Any) -> Any:
        """It accepts one answer, and then no more is judged."""
        told = FakeMarket.answer(fake_market, worker, said)
        return told.model_copy(update={"waves": (), "verdicts": (), "uploads": ()}) if fake_market.earned else told

    monkeypatch.setattr(fake_market, "answer", answer_until_paid)
    process = start()
    process.until(lambda: fake_market.earned)
    process.until(lambda: fake_market.committed > fake_market.earned // 7)
    process.popen.send_signal(signal.SIGTERM)
    process.until(lambda: any(event["event"] == "leaving" for event in process.events()))
    process.popen.send_signal(signal.SIGTERM)
    done = process.summary()
    assert process.popen.returncode == 1
    assert not done["finished"]
    redeemed = subprocess.run(
        [sys.executable, "-c", COMMAND, "wallet", "redeem", "--data", str(folder)], capture_output=True, text=True
    )
    assert redeemed.returncode == 0, redeemed.stdout + redeemed.stderr
    assert balance(fake_market, address_of(worker_key)) == int(done["earned"]) > 0


@FULL
def test_two_workers_do_not_share_a_folder(fake_market: FakeMarket, start: Start) -> None:
    first = start()
    first.until(lambda: len(first.events()) > 1)
    second = start()
    assert second.popen.wait(PATIENCE_S) == 2
    told = second.log.read_text()
    assert "another worker uses" in told
    assert "end it first" in told
