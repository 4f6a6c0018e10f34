"""One town for a whole run: a served market with one worker, for all tests that use a market from outside.

Each test has jobs of its own there. xdist gives all of NEIGHBOURS to one process, so that one town is started.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling

from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service

ALONE: Final = {"name": "fixed", "replicas": 1, "max_replicas": 1}
"""With one worker nobody votes."""
NEIGHBOURS: Final = (
    "tests/e2e/test_docs_site.py",
    "tests/e2e/test_generated_client.py",
    "tests/public_audit/test_continued_audit.py",
    "tests/public_audit/test_public_audit.py",
    "tests/sdk/test_auditor.py",
    "tests/sdk/test_auditors_of_two_classes.py",
    "tests/sdk/test_callbacks.py",
    "tests/sdk/test_continued_jobs.py",
    "tests/sdk/test_examples.py",
    "tests/sdk/test_frames.py",
    "tests/sdk/test_new.py",
    "tests/sdk/test_newcomers_mistakes.py",
    "tests/sdk/test_one_class_votes.py",
    "tests/sdk/test_private.py",
    "tests/sdk/test_secure_rounds.py",
    "tests/sdk/test_sweep.py",
    "tests/sdk/test_text_jobs.py",
    "tests/sdk/test_train.py",
    "tests/sdk/test_two_classes_vote.py",
)


class TownScheduling(LoadFileScheduling):
    """Gives each file to one process, and all files of the town to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return "town" if file in NEIGHBOURS else file


@contextmanager
def start_town(folder: Path) -> Iterator[Service]:
    """Starts a service and a worker with their data below the folder; ends both and their chain."""
    children = DemoProcesses(folder / "logs")
    try:
        made = service.start_service(children, folder / "data")
        children.start("worker", ["-m", "gradmarket", "worker", "run", "--market", made.place.url,
                                  "--data", str(folder / "worker")])  # fmt: skip
        yield made
    finally:
        children.end()
        service.stop_chain(folder / "data")
