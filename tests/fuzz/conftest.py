"""One warm runner for the documents that are run."""

from collections.abc import Iterator

import pytest

from fuzz.running import settings
from gradmarket.runner import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner(settings()) as started:
        yield started
