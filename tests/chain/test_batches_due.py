"""A batch is due at the first of its thresholds: age, number or worth; and at once where the job is over."""

import pytest

from requester.chain.chain_context import ChainPolicy
from requester.chain.settlement_batches import is_batch_due

POLICY = ChainPolicy(settle_every_s=5.0, settle_gradients=10, settle_units=100)


@pytest.mark.parametrize(
    ("waiting", "units", "age", "ended", "expected"),
    [
        (0, 0, 1000.0, True, False),
        (1, 1, 4.999, False, False),
        (1, 1, 5.0, False, True),
        (1, 99, 0.0, False, False),
        (1, 100, 0.0, False, True),
        (9, 9, 0.0, False, False),
        (10, 10, 0.0, False, True),
        (1, 1, 0.0, True, True),
    ],
)
def test_a_batch_is_due_from_each_threshold_on(
    waiting: int, units: int, age: float, ended: bool, expected: bool
) -> None:
    assert is_batch_due(waiting, units, 1000.0, POLICY, 1000.0 + age, ended) is expected


def test_without_a_worth_only_age_and_number_count() -> None:
    policy = ChainPolicy(settle_every_s=5.0, settle_gradients=10)
    assert not is_batch_due(9, 10**18, 0.0, policy, 4.0, False)
