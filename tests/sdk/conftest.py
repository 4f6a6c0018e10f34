"""One served market with one worker, shared by all that is tried through the Python door."""

from collections.abc import Iterator

import pytest

from gradmarket import Market
from gradmarket.demo.service import Service
from tests.served_market import served_market

ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
"""With one worker nobody votes."""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served_market(tmp_path_factory.mktemp("market")) as made:
        yield made


@pytest.fixture(scope="session")
def market(served: Service) -> Iterator[Market]:
    with Market(served.place.url, served.place.token) as opened:
        yield opened
