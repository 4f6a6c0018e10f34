"""Votes by sketches: two classes whose honest answers differ in their last bits agree, and nothing else does."""

from collections.abc import Callable
from typing import Any

import pytest
from books import check_books
from market_floor import PRICE, Floor
from market_workers import scaled

from gradmarket.market.terms import JobState

NewFloor = Callable[..., Floor]
SQLITE = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
CPU, GPU = "cpu", "gpu"
NEARBY = scaled(1 + 2e-7)
"""An honest machine of another class: its last bits are others."""
SPEC: dict[str, Any] = {
    "verifier": {"name": "tolerance"},
    "audit": {"probability": 1e-9},
    "replication": {"replicas": 3, "max_replicas": 3},
}


def mixed(new_floor: NewFloor, **changes: Any) -> Floor:
    floor = new_floor(**(SPEC | changes))
    floor.calibrate(CPU, GPU)
    return floor


def test_two_classes_agree_and_all_are_paid_for_one_payload(new_floor: NewFloor) -> None:
    floor = mixed(new_floor, rounds=2)
    one, two, other = floor.worker(), floor.worker(), floor.worker(NEARBY, determinism_class=GPU)
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert floor.earned() == {worker.address: 2 * PRICE for worker in (one, two, other)}
    assert one.newest().root != other.newest().root
    for worker in (one, two, other):
        assert worker.refusals == []
        assert worker.newest().told is not None
        assert worker.newest().told.root == worker.newest().root
    for task in floor.tasks():
        (canonical,) = [replica for replica in floor.replicas() if replica.id == task.uploader]
        assert (task.root, task.determinism_class) == (canonical.root, canonical.determinism_class)
    check_books(floor)
