"""A worker and a market of two releases: it does not join, takes nothing any more once the market became another, and
names the one to upgrade."""

import threading
from io import StringIO
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL
from gradmarket.market.signing import address_of
from tests.patience import wait_for_end, wait_until
from tests.worker.fake_market import FakeMarket, Server
from worker import run as session
from worker.journal import Journal
from worker.settings import WorkerSettings
from worker.signals import Signals


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_a_worker_joins_no_market_of_another_release(
    fake_market: FakeMarket, server: Server, folder: Path, protocol: int
) -> None:
    fake_market.protocol = protocol
    settings = WorkerSettings(market=server.url, data=folder, threads=1)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=f"is of another release \\(protocol {protocol}") as refused:
        session.run_worker(settings, None, Journal(stream=StringIO()), Signals())
    assert "bring" in refused.value.remedy
    assert fake_market.asked == []


@pytest.mark.usefixtures("shared_child")
def test_a_worker_of_another_release_logs_the_remedy_once_and_resumes(
    fake_market: FakeMarket, server: Server, folder: Path, worker_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_market.job.reserve((address_of(worker_key), 100))
    monkeypatch.setattr("worker.markets.market_session.PROBLEM_PAUSE_S", 0.01)
    told, signals = StringIO(), Signals()
    settings = WorkerSettings(market=server.url, data=folder, threads=1, wait_s=0.05)  # type: ignore[arg-type]
    fake_market.most = 1
    works = threading.Thread(target=session.run_worker, args=(settings, None, Journal(stream=told), signals))
    works.start()
    try:
        wait_until(lambda: any(row.heard for row in fake_market.rows.values()))
        fake_market.most, fake_market.protocol = 2, PROTOCOL + 1
        wait_until(lambda: "another release" in told.getvalue())
        wait_until(lambda: len(fake_market.rows) == 2)
        asked = len(fake_market.asked)
        wait_until(lambda: len(fake_market.asked) > asked + 1)
        assert told.getvalue().count("another release") == 1
        assert f"(protocol {PROTOCOL + 1}, this worker has {PROTOCOL}); bring this worker to" in told.getvalue()
        assert f"the release of {server.url}, gradmarket 9.9.9" in told.getvalue()
        assert told.getvalue().count("Working on") == 1
        fake_market.protocol = PROTOCOL
        wait_until(lambda: all(row.heard for row in fake_market.rows.values()))
    finally:
        signals.leave()
        wait_for_end(works)
    assert fake_market.earned == 2 * fake_market.price
