"""A market that is down, gone or done: the worker waits or leaves, and redeems its vouchers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from contracts.local import LocalChain
from gradmarket.compute import own_machine
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, JobId
from gradmarket.market.wire.poll import PollAnswer, PollRequest, UnusedReservation, WaveOpened
from graphdoc.runner.driver import Card, Cards
from tests.kit.worker_context import fund_job
from tests.lanes import leave_to_full
from tests.onchain import NewKey
from tests.patience import wait_for_end, wait_until
from tests.worker.fake_market import FakeMarket, Row, Server, app_of
from worker import run as session
from worker.journal import Journal
from worker.markets.loop import Loop
from worker.money.account_store import BOOK, AccountStore
from worker.settings import WorkerSettings
from worker.signals import Signals


class RunningWorker:
    """A worker in a thread of this process; a process of its own is in test_worker_process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._signals, self._said = Signals(), StringIO()
        given = (settings, None, Journal(True, self._said), self._signals)
        self._thread = threading.Thread(target=session.run_worker, args=given)
        self._thread.start()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._said.getvalue().splitlines() if line.endswith("}")]

    def until(self, reached: Callable[[], object]) -> None:
        wait_until(lambda: reached() or not self._thread.is_alive(), self._said.getvalue)
        assert self._thread.is_alive(), self._said.getvalue()

    def unreachable(self) -> bool:
        return any(event["event"] == "unreachable" for event in self.events())

    def leaves(self) -> dict[str, Any]:
        """As the first signal asks it to; returns its summary."""
        self._signals.leave()
        wait_for_end(self._thread)
        assert self.events()[-1]["event"] == "summary", self._said.getvalue()
        return self.events()[-1]


Start = Callable[[], RunningWorker]


@pytest.fixture
def start(
    server: Server, fake_market: FakeMarket, folder: Path, worker_key: PrivateKey, shared_child: None
) -> Iterator[Start]:
    """Starts a worker with money reserved for it; it has left when the test is over."""
    fake_market.job.reserve((address_of(worker_key), 100))
    times: dict[str, Any] = {"leave_s": 100, "upkeep_s": 0.5, "leave_market_s": 1, "wait_s": 0.3}
    settings = WorkerSettings(market=server.url, data=folder, max_memory=2**31, **times)  # type: ignore[arg-type]
    with ExitStack() as stack:

        def begin() -> RunningWorker:
            running = RunningWorker(settings)
            stack.callback(running.leaves)
            return running

        yield begin


def test_a_worker_with_two_cards_is_one_wallet_with_twice_the_leases(
    fake_market: FakeMarket,
    server: Server,
    folder: Path,
    worker_key: PrivateKey,
    shared_child: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = tuple(Card(number, "card", f"{folder.name}-{number}", "sm_90", 2**36) for number in range(2))
    monkeypatch.setattr(own_machine, "list_cards", lambda: Cards("580", cards))
    fake_market.job.reserve((address_of(worker_key), 100))
    times: dict[str, Any] = {"leave_s": 100, "leave_market_s": 1, "wait_s": 0.3, "max_memory": 2**31}
    worker = RunningWorker(WorkerSettings(market=server.url, data=folder, device="all", **times))  # type: ignore[arg-type]
    worker.until(lambda: fake_market.earned == 21)
    assert worker.leaves()["redeemed"] == "21"
    assert max(said.capacity for said in fake_market.asked) == 2
    assert [event["cores"] > 0 for event in worker.events() if event["event"] == "machine"] == [True, True]


def balance(fake_market: FakeMarket, key: PrivateKey) -> int:
    return fake_market.job.ledger.balance(address_of(key))


def test_a_job_that_ends_is_redeemed_and_released_without_a_signal(
    fake_market: FakeMarket, start: Start, worker_key: PrivateKey
) -> None:
    worker = start()
    worker.until(lambda: fake_market.earned == 21)
    fake_market.state = "finished"
    worker.until(lambda: fake_market.job.ledger.account(fake_market.job.id, address_of(worker_key)).reserved == 21)
    assert balance(fake_market, worker_key) == 21


def test_a_market_that_is_down_is_waited_for(
    anvil: LocalChain, fake_market: FakeMarket, start: Start, server: Server
) -> None:
    fake_market.most = 1
    worker = start()
    worker.until(lambda: fake_market.earned == 7)
    port = server.port
    server.__exit__()
    worker.until(worker.unreachable)
    fake_market.most = 2
    with Server(app_of(fake_market, anvil.url), port):
        worker.until(lambda: fake_market.earned == 14)
        assert worker.leaves()["earned"] == "14"


@pytest.mark.parametrize("lie", leave_to_full([{"replica": "a/../b\n"}, {"state": "gone"}, {"price": -1}], 1))
def test_an_answer_that_nothing_can_be_made_of_ends_no_worker(
    fake_market: FakeMarket, start: Start, monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]
) -> None:
    """Once it has its pay every poll answers nonsense; earlier earnings are redeemed."""
    honest = fake_market.answer

    def answer(worker: Address, said: PollRequest) -> PollAnswer:
        told = honest(worker, said)
        row = next(iter(fake_market.rows.values()), None)
        if row is None or not row.heard:
            return told
        return told.model_copy(update={"verdicts": (fake_market.verdict(row).model_copy(update=lie),)})

    monkeypatch.setattr(fake_market, "answer", answer)
    fake_market.most = 1
    monkeypatch.setattr("worker.markets.market_session.PROBLEM_PAUSE_S", 0.0)
    worker = start()
    worker.until(lambda: any(event["event"] == "problem" for event in worker.events()))
    done = worker.leaves()
    assert (done["earned"], done["redeemed"]) == ("7", "7")


def test_an_unforeseen_error_in_a_turn_does_not_end_the_worker(
    fake_market: FakeMarket, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with several markets; earlier earnings are redeemed."""
    failed = list[Loop]()
    turn = Loop.turn

    def fail_later(loop: Loop, *given: Any) -> bool:
        if fake_market.earned and not failed:
            failed.append(loop)
            raise ValueError("a market's number")
        return turn(loop, *given)

    monkeypatch.setattr(Loop, "turn", fail_later)
    monkeypatch.setattr("worker.markets.market_session.PROBLEM_PAUSE_S", 0.0)
    worker = start()
    worker.until(lambda: any(event["text"] == "ValueError: a market's number" for event in worker.events()))
    assert int(worker.leaves()["redeemed"]) >= 7


def test_a_reservation_that_no_task_came_for_is_released_when_its_job_ends(
    fake_market: FakeMarket, start: Start, worker_key: PrivateKey
) -> None:
    fake_market.most, job = 0, fake_market.job
    worker = start()
    worker.until(lambda: fake_market.asked)
    fake_market.state = "finished"
    fake_market.unused = {JobId(fake_market.publication.job): UnusedReservation(chain_job=job.id, earned=0)}
    worker.until(lambda: job.ledger.account(job.id, address_of(worker_key)).reserved == 0)


def test_a_worker_that_leaves_releases_what_no_task_came_for(
    fake_market: FakeMarket, start: Start, worker_key: PrivateKey
) -> None:
    fake_market.most, job = 0, fake_market.job
    fake_market.unused = {JobId(fake_market.publication.job): UnusedReservation(chain_job=job.id, earned=0)}
    worker = start()
    worker.until(lambda: fake_market.asked)
    worker.leaves()
    assert job.ledger.account(job.id, address_of(worker_key)).reserved == 0


def test_a_key_in_a_new_folder_releases_nothing_that_it_earned_before(
    fake_market: FakeMarket, start: Start, worker_key: PrivateKey
) -> None:
    """The folder with its vouchers is lost, and nothing is settled yet."""
    fake_market.most, fake_market.earned, job = 0, 21, fake_market.job
    fake_market.unused = {JobId(fake_market.publication.job): UnusedReservation(chain_job=job.id, earned=21)}
    worker = start()
    worker.until(lambda: fake_market.asked)
    fake_market.state = "finished"
    worker.until(lambda: job.ledger.account(job.id, address_of(worker_key)).reserved < 100)
    worker.until(lambda: balance(fake_market, worker_key) == 21)
    assert job.ledger.account(job.id, address_of(worker_key)).reserved == 21


def test_no_account_is_opened_for_a_reservation_that_the_chain_does_not_have(
    fake_market: FakeMarket, start: Start, folder: Path
) -> None:
    fake_market.most = 0
    numbers = {JobId("made-up"): 10**9, JobId("other"): 2**300, JobId("less"): -1}
    fake_market.unused = {job: UnusedReservation(chain_job=one, earned=0) for job, one in numbers.items()}
    worker = start()
    worker.until(lambda: len(fake_market.asked) > 3)
    worker.leaves()
    assert not AccountStore(folder / BOOK).accounts


@pytest.mark.parametrize("whose", ["its own under another name", "of another signer", "of another specification"])
def test_no_account_is_opened_under_a_name_that_is_not_the_job_s_own(
    fake_market: FakeMarket, start: Start, folder: Path, worker_key: PrivateKey, new_key: NewKey, whose: str
) -> None:
    """A market of the same contract would release what others reserve, and a lease of theirs find the wrong account."""
    fake_market.most, own = 0, fake_market.job
    name, other = JobId(fake_market.publication.job), own
    if whose == "its own under another name":
        name = JobId("f" * 16)
    else:
        signer = new_key() if whose == "of another signer" else own.signer
        changes = {"job": "f" * 16} if whose == "of another specification" else {}
        other = fund_job(own.ledger, new_key(), signer, fake_market.publication.model_copy(update=changes))
        other.reserve((address_of(worker_key), 100))
    fake_market.unused = {name: UnusedReservation(chain_job=other.id, earned=0)}
    worker = start()
    worker.until(lambda: len(fake_market.asked) > 3)
    worker.leaves()
    assert not AccountStore(folder / BOOK).accounts
    assert any(event["event"] == "upkeep" and "another job" in event["text"] for event in worker.events())
    assert other.ledger.account(other.id, address_of(worker_key)).reserved >= 100


def test_without_a_market_it_still_redeems_when_it_leaves(
    fake_market: FakeMarket, start: Start, server: Server, worker_key: PrivateKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opening = fake_market.wave

    def gone(row: Row) -> WaveOpened:
        """The market ends for good with a commitment in its hands."""
        server.stop()
        raise ConnectionError(f"nothing is said of {row.id}")

    monkeypatch.setattr(fake_market, "wave", lambda row: opening(row) if row.number < 2 else gone(row))
    worker = start()
    worker.until(worker.unreachable)
    done = worker.leaves()
    assert (done["earned"], done["redeemed"], done["finished"]) == ("14", "14", True)
    assert balance(fake_market, worker_key) == 14
