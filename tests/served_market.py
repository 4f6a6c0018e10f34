"""A served market with one worker, for tests that use it from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service


@contextmanager
def served_market(folder: Path) -> Iterator[Service]:
    """Starts a service and a worker with their data below the folder; ends both and their chain."""
    children = DemoProcesses(folder / "logs")
    try:
        made = service.start(children, folder / "data")
        children.start("worker", ["-m", "gradmarket", "worker", "run", "--market", made.place.url,
                                  "--data", str(folder / "worker")])  # fmt: skip
        yield made
    finally:
        children.end()
        service.stop_chain(folder / "data")
