"""One warm runner for the documents that are run."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fuzz.running import settings
from gradmarket.runner import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner(replace(settings(), seconds=60.0)) as started:
        yield started
