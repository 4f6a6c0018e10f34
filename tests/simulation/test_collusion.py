"""The odds that colluders decide a task: the published figures, and a count of every way to draw them."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.terms import Plan
from gradmarket.trust import collusion
from gradmarket.trust.collusion import (
    ColludingPool,
    compute_lying_pay,
    compute_odds,
    compute_sharing_pay,
    compute_silent_share,
    over_a_job,
)

TRIPLE = Plan(3, 2, 5)
PAIR = Plan(2, 2, 5)


@pytest.mark.parametrize(("percent", "expected"), [(10, 0.028), (20, 0.104), (30, 0.216)])
def test_three_replicas(percent: int, expected: float) -> None:
    assert float(compute_odds(TRIPLE, ColludingPool(Fraction(percent, 100))).wrong) == pytest.approx(expected)


def test_seven_of_sixteen_hold_two_of_three_in_four_of_ten_tasks() -> None:
    assert compute_odds(TRIPLE, ColludingPool(Fraction(7, 16), 16)).wrong == Fraction(2, 5)
    assert compute_silent_share(TRIPLE, ColludingPool(Fraction(7, 16), 16)) == Fraction(2, 5)


@pytest.mark.parametrize("percent", [5, 10, 20, 30])
def test_two_and_a_third_only_on_disagreement_is_as_safe_as_three_and_cheaper(percent: int) -> None:
    pool = ColludingPool(Fraction(percent, 100))
    two, three = compute_odds(PAIR, pool), compute_odds(TRIPLE, pool)
    assert two.wrong == three.wrong
    assert two.replicas < Fraction(25, 10) < three.replicas == 3
    assert float(compute_odds(PAIR, ColludingPool(Fraction(1, 10))).replicas) == pytest.approx(2.18)


@given(st.integers(1, 7), st.integers(0, 20))
def test_right_wrong_and_undecided_are_all_there_is(replicas: int, twentieths: int) -> None:
    found = compute_odds(Plan(replicas, replicas // 2 + 1, replicas + 2), ColludingPool(Fraction(twentieths, 20)))
    assert 0 <= found.undecided <= 1
    assert 0 <= found.wrongly_accepted <= 1
    assert found.replicas >= replicas


@pytest.mark.parametrize("plan", [TRIPLE, PAIR, Plan(5, 3, 5), Plan(1, 1, 1)])
def test_the_silent_share_equals_the_count_over_all_first_waves(plan: Plan) -> None:
    f = Fraction(1, 5)
    ways = product((True, False), repeat=plan.first_wave)
    by_hand = sum(
        (f ** sum(way) * (1 - f) ** (len(way) - sum(way)) for way in ways if plan.decides(len(way), sum(way))),
        Fraction(0),
    )
    assert compute_silent_share(plan, ColludingPool(f)) == by_hand


@pytest.mark.parametrize(("percent", "sharing"), [(10, 1.107), (20, 1.230), (30, 1.370), (50, 1.714)])
def test_sharing_pays_and_lying_pays_more_where_identities_are_free(percent: int, sharing: float) -> None:
    pool, one = ColludingPool(Fraction(percent, 100)), Plan(1, 1, 1, 0.1)
    assert float(compute_sharing_pay(TRIPLE, pool) or 0) == pytest.approx(sharing, abs=1e-3)
    assert (compute_lying_pay(TRIPLE, pool) or 0) > (compute_sharing_pay(TRIPLE, pool) or 0)
    assert (compute_sharing_pay(one, pool), compute_lying_pay(one, pool)) == (1, None)
    assert compute_sharing_pay(TRIPLE, ColludingPool(Fraction(0))) is None


def test_colluders_that_cannot_be_drawn_have_no_vote() -> None:
    nobody_left = compute_odds(Plan(3, 2, 5), ColludingPool(Fraction(1, 2), 2))
    assert (nobody_left.right, nobody_left.wrong, nobody_left.wrongly_accepted) == (0, 0, 0)


def test_one_colluder_never_decides_alone() -> None:
    assert compute_odds(TRIPLE, ColludingPool(Fraction(1, 16), 16)).wrong == 0
    assert compute_odds(Plan(1, 1, 1), ColludingPool(Fraction(1, 16), 16)).wrong == Fraction(1, 16)


def test_over_a_job_one_wrong_task_is_nearly_certain() -> None:
    assert over_a_job(Fraction(28, 1000), 1000) > 0.999999
    assert over_a_job(Fraction(1, 1000), 1) == pytest.approx(0.001)
    assert over_a_job(Fraction(0), 10**6) == 0.0
    assert over_a_job(Fraction(1), 1) == 1.0
    assert collusion.over_a_job(Fraction(1, 10**12), 10**6) == pytest.approx(1e-6, rel=1e-3)
