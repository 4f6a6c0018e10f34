"""A worker states the memory of its device rounded down."""

from hypothesis import given
from hypothesis import strategies as some

from gradmarket.market.rules.classes import GRAIN, round_memory


@given(some.integers(0, 2**50))
def test_a_worker_s_rounded_memory_is_no_more_than_it_has(size: int) -> None:
    assert 0 <= size - round_memory(size) < GRAIN
