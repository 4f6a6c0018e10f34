"""A market of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.ledger import Ledger
from tests.databases import NewDatabase
from tests.kit.unchained import unchained
from tests.requester.market_fixture import MarketFixture, market_folder

NewMarket = Callable[..., MarketFixture]


@pytest.fixture(scope="session")
def market_ledger() -> Ledger:
    return unchained()


@contextmanager
def open_markets(ledger: Ledger, database: NewDatabase) -> Iterator[NewMarket]:
    """Closes at the end what it made."""
    with ExitStack() as stack:

        def make(**spec: Any) -> MarketFixture:
            folder = stack.enter_context(market_folder())
            market = MarketFixture(Path(folder), ledger, database, **spec)
            stack.callback(market.close)
            return market

        yield make


@pytest.fixture
def new_market(market_ledger: Ledger, new_database: NewDatabase) -> Iterator[NewMarket]:
    with open_markets(market_ledger, new_database) as made:
        yield made


@pytest.fixture
def leased(new_market) -> MarketFixture:  # type: ignore[no-untyped-def]
    """Three workers hold a lease on the only task."""
    market: MarketFixture = new_market()
    for _ in range(3):
        market.worker()
    market.gather()
    for worker in market.workers:
        worker.computed(worker.newest())
    return market
