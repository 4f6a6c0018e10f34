"""Work under way, for which a discovered market keeps one of the worker's few places."""

from types import SimpleNamespace

import pytest

from gradmarket.market.terms import ReplicaState
from worker.protocol.in_flight import LONGEST_S, InFlight

TAKEN = 1_800_000_000.0


@pytest.mark.parametrize(
    ("lease_s", "after_s", "state", "counts"),
    [
        (20, 40, ReplicaState.LEASED, True),
        (20, 41, ReplicaState.LEASED, False),
        (20, 40, ReplicaState.EXPIRED, False),
        (365 * 86_400, LONGEST_S, ReplicaState.LEASED, True),
        (365 * 86_400, LONGEST_S + 1, ReplicaState.LEASED, False),
    ],
)
def test_a_lease_of_a_year_is_work_under_way_for_an_hour(
    lease_s: int, after_s: float, state: ReplicaState, counts: bool
) -> None:
    offer = SimpleNamespace(lease_seconds=lease_s, wave_seconds=10, upload_seconds=10)
    held = InFlight.model_construct(lease=SimpleNamespace(offer=offer), taken_at=TAKEN, state=state)
    assert held.under_way(TAKEN + after_s) is counts
