"""The expected pay of one more worker, compared with rounds that are played with one worker more."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.records import PaidAnswer, estimate_hourly_pay

PRICE = 10


def played(
    workers: int, answers: int, turn_s: float, besides_s: float, rounds: int = 5
) -> tuple[list[float], list[PaidAnswer]]:
    """Plays rounds of `answers` answers, in turns of one by each worker; in `besides_s` of each nobody computes."""
    lasted = ceil(answers / workers) * turn_s + besides_s
    names = [f"worker {number % workers}" for number in range(rounds * answers)]
    return [lasted] * rounds, [PaidAnswer(name, PRICE, turn_s) for name in names]


@given(st.integers(1, 30), st.integers(1, 60), st.floats(0.01, 100.0), st.floats(0.0, 100.0))
def test_the_expected_pay_is_that_of_all_after_one_more_joined(
    workers: int, answers: int, turn_s: float, besides_s: float
) -> None:
    workers = min(workers, answers)
    expected = estimate_hourly_pay(*played(workers, answers, turn_s, besides_s))
    (lasted, *_), _paid = played(workers + 1, answers, turn_s, besides_s)
    earned = PRICE * answers / (workers + 1) / lasted * 3600
    assert expected == pytest.approx(earned, rel=1e-6)


def test_where_each_round_has_one_answer_two_share_it() -> None:
    assert estimate_hourly_pay(*played(1, 1, 2.0, 1.0)) == pytest.approx(PRICE * 3600 / 3.0 / 2)


def test_where_there_is_always_a_task_all_earn_as_before() -> None:
    assert estimate_hourly_pay(*played(2, 600, 1.0, 0.0)) == pytest.approx(PRICE * 3600 / 1.0)


def test_where_nobody_was_paid_nothing_is_expected() -> None:
    assert estimate_hourly_pay([], []) is None
    assert estimate_hourly_pay([3.0], []) is None
    assert estimate_hourly_pay([], [PaidAnswer("a", 1, 1.0)]) is None
    assert estimate_hourly_pay([0.0], [PaidAnswer("a", 1, 0.0)]) is None


@given(
    st.lists(st.floats(0.0, 1e6), max_size=10),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**12), st.floats(0.0, 1e6)), max_size=20),
)
def test_the_expected_pay_is_never_negative(lasted: list[float], paid: list[tuple[str, int, float]]) -> None:
    expected = estimate_hourly_pay(lasted, [PaidAnswer(*one) for one in paid])
    assert expected is None or expected >= 0
