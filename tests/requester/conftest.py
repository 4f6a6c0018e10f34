"""A floor of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from market_floor import Floor

from gradmarket.contracts.ledger import Ledger

IN_MEMORY = Path("/dev/shm")
"""Syncing to disk is most of what these tests would wait for."""

NewFloor = Callable[..., Floor]


@pytest.fixture
def new_floor(ledger: Ledger) -> Iterator[NewFloor]:
    with ExitStack() as stack:

        def make(**spec: Any) -> Floor:
            folder = stack.enter_context(TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
            floor = Floor(Path(folder), ledger, **spec)
            stack.callback(floor.close)
            return floor

        yield make
