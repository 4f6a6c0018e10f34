"""One served market with one worker, shared by all that is tried through the Python door."""

from collections.abc import Iterator

import pytest

from gradmarket import Market
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service

ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
"""With one worker nobody votes."""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("market")
    children = DemoProcesses(folder / "logs")
    try:
        made = service.start(children, folder / "data")
        children.start("worker", ["-m", "gradmarket", "worker", "run", "--market", made.place.url,
                                  "--data", str(folder / "worker")])  # fmt: skip
        yield made
    finally:
        children.end()
        service.stop_chain(folder / "data")


@pytest.fixture(scope="session")
def market(served: Service) -> Iterator[Market]:
    with Market(served.place.url, served.place.token) as opened:
        yield opened
