"""The run's town, as the Python door's tests name it."""

from collections.abc import Iterator

import pytest

from gradmarket import Market
from gradmarket.demo.service import Service


@pytest.fixture(scope="session")
def served(town: Service) -> Service:
    return town


@pytest.fixture(scope="session")
def market(served: Service) -> Iterator[Market]:
    with Market(served.place.url, served.place.token) as opened:
        yield opened
