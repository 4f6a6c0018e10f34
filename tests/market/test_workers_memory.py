"""The memory that a step may count on: at least half of the workers have it, and fewer than half have more."""

from hypothesis import given
from hypothesis import strategies as some

from gradmarket.market.rules.classes import GRAIN, find_common_memory, round_memory

TOLD = some.lists(some.integers(0, 9), max_size=12)


@given(TOLD)
def test_half_of_the_workers_with_known_memory_have_the_common_one(told: list[int]) -> None:
    found, known = find_common_memory(told), [size for size in told if size]
    if not known:
        assert found is None
        return
    assert found is not None
    assert 2 * sum(size >= found for size in known) >= len(known)
    assert 2 * sum(size > found for size in known) < len(known)


@given(some.integers(0, 2**50))
def test_a_worker_s_rounded_memory_is_no_more_than_it_has(size: int) -> None:
    assert 0 <= size - round_memory(size) < GRAIN
