"""A floor of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from databases import NewDatabase
from market_floor import Floor, folder_for_floor

from gradmarket.contracts.ledger import Ledger

NewFloor = Callable[..., Floor]


@pytest.fixture
def new_floor(ledger: Ledger, new_database: NewDatabase) -> Iterator[NewFloor]:
    with ExitStack() as stack:

        def make(**spec: Any) -> Floor:
            folder = stack.enter_context(folder_for_floor())
            floor = Floor(Path(folder), ledger, new_database, **spec)
            stack.callback(floor.close)
            return floor

        yield make


@pytest.fixture
def leased(new_floor) -> Floor:  # type: ignore[no-untyped-def]
    """Three workers hold a lease on the only task."""
    floor: Floor = new_floor()
    for _ in range(3):
        floor.worker()
    floor.gather()
    for worker in floor.workers:
        worker.computed(worker.newest())
    return floor
