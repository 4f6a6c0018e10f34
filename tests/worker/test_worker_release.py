"""A worker and a market of two releases: it does not join, and says which of the two is to be brought along."""

from io import StringIO
from pathlib import Path

import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL
from tests.worker.fake_market import FakeMarket, Server
from worker import run as session
from worker.journal import Journal
from worker.settings import WorkerSettings
from worker.signals import Signals


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_it_joins_no_market_of_another_release(
    fake_market: FakeMarket, server: Server, folder: Path, protocol: int
) -> None:
    fake_market.protocol = protocol
    settings = WorkerSettings(market=server.url, data=folder, threads=1)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=f"is of another release \\(protocol {protocol}") as refused:
        session.run_worker(settings, None, Journal(stream=StringIO()), Signals())
    assert "bring" in refused.value.remedy
    assert fake_market.asked == []
