"""Whom a round waits for, and how long: by measured times, which nobody gains from making worse."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.late import DEVIATIONS, LEAST, NORMAL, SLOWEST, Pace, compute_pace, expected_s, grace_s
from gradmarket.market.rules.stragglers import due_since

SECONDS = st.floats(0.001, 1e5)
TIMES = st.lists(SECONDS, min_size=LEAST, max_size=30)


def test_a_pace_is_the_median_and_the_median_deviation() -> None:
    assert compute_pace([1.0, 2.0, 3.0, 4.0, 100.0]) == Pace(3.0, 1.0)
    assert Pace(3.0, 1.0).latest == pytest.approx(3.0 + DEVIATIONS * NORMAL)
    assert Pace(10.0, 0.0).latest == 15.0  # times that do not differ leave a margin too
    assert compute_pace([1.0] * (LEAST - 1)) is None


@given(own=st.lists(SECONDS, max_size=30), of_class=st.lists(SECONDS, max_size=30), most=SECONDS)
def test_no_answer_is_expected_after_the_lease(own: list[float], of_class: list[float], most: float) -> None:
    assert 0 < expected_s(own, of_class, most) <= most


@given(own=TIMES, of_class=TIMES, slower=st.floats(1.0, 1e6), most=SECONDS)
def test_a_worker_that_pretends_to_be_slow_is_awaited_no_longer_than_its_class(
    own: list[float], of_class: list[float], slower: float, most: float
) -> None:
    usual = compute_pace(of_class)
    assert usual is not None
    pretended = expected_s([slower * time for time in own], of_class, most)
    assert pretended <= min(most, SLOWEST * usual.latest)


@given(honest=TIMES, lies=st.lists(st.floats(0, 1e12), max_size=29))
def test_less_than_half_of_a_class_cannot_make_it_slow(honest: list[float], lies: list[float]) -> None:
    lies = lies[: len(honest) - 1]
    found = compute_pace([*honest, *lies])
    assert found is not None
    reach = max(honest) - min(honest)
    assert min(honest) <= found.median <= max(honest)
    assert found.deviation <= reach + 1e-9 * max(honest)
    assert found.latest <= max(1.5 * max(honest), max(honest) + DEVIATIONS * NORMAL * reach) * (1 + 1e-9)


@given(own=TIMES, of_class=TIMES, most=SECONDS)
def test_a_worker_of_a_fast_class_is_expected_by_its_own_times(
    own: list[float], of_class: list[float], most: float
) -> None:
    mine = compute_pace(own)
    assert mine is not None
    assert expected_s(own, of_class, most) <= mine.latest
    assert expected_s([], of_class, math.inf) == compute_pace(of_class).latest  # type: ignore[union-attr]


@given(ends=st.lists(st.floats(-1e4, 1e5), max_size=20), times=TIMES, most=SECONDS)
def test_a_grace_costs_the_next_round_nothing_but_what_equal_machines_differ_by(
    ends: list[float], times: list[float], most: float
) -> None:
    usual = compute_pace(times)
    assert usual is not None
    grace = grace_s(ends, usual, most)
    assert 0.0 <= grace <= most
    if grace > usual.spread:  # tasks that begin after it end before the latest of those that are left
        assert grace + usual.median <= max(ends) * (1 + 1e-9)


def test_a_grace_waits_for_nobody_where_nothing_is_known_or_left() -> None:
    assert grace_s([], Pace(1.0, 1.0), 30.0) == 0.0
    assert grace_s([5.0], None, 30.0) == 0.0
    assert grace_s([5.0], Pace(1.0, 0.0), 30.0) == 4.0
    assert grace_s([1e9], Pace(1.0, 0.0), 30.0) == 30.0  # a lease that is held for ever is not waited for
    assert grace_s([-5.0], Pace(1.0, 0.0), 30.0) == 0.0


@given(first=st.integers(0, 100), staleness=st.integers(0, 4), rounds=st.integers(1, 100))
def test_no_task_is_left_for_more_rounds_than_the_job_allows(first: int, staleness: int, rounds: int) -> None:
    left = 0
    while first + left < rounds and due_since(first + left, rounds, staleness) < first:
        left += 1
    assert left <= max(1, staleness)
    assert first + left <= max(first, rounds - 1)  # the last round leaves none


def test_the_deviation_of_normal_times_is_their_standard_deviation() -> None:
    normal = [NormalDist().inv_cdf((n + 0.5) / 2001) for n in range(2001)]
    found = compute_pace(normal)
    assert found is not None
    assert found.deviation * NORMAL == pytest.approx(1.0, abs=2e-3)
