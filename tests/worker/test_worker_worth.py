"""The least price that keeps an owner's minimums, and the choice among several offers."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.compute.machine import OVERHEAD_S, Effort
from gradmarket.market.rules.pricing import Price
from gradmarket.market.terms import Amount, JobId
from worker.protocol.policy import Guard, WorkLimits, too_cheap
from worker.protocol.worth import (
    HOUR_S,
    Minimum,
    Prospect,
    compute_hourly_pay,
    compute_least_price,
    find_best_prospect,
    rank_markets,
)

AMOUNTS = st.integers(0, 10**24).map(Amount)
EFFORTS = st.builds(Effort, st.integers(0, 10**16), st.floats(0, 10**4))
MINIMUMS = st.builds(Minimum, AMOUNTS, AMOUNTS, AMOUNTS)
PROSPECTS = st.builds(Prospect, st.text("abc", min_size=1, max_size=3), st.just("job"), AMOUNTS, EFFORTS)
LIMITS = WorkLimits(frozenset[JobId](), Amount(1), 1, 1, 0.0, max_flops=1e16, max_memory=2**30)
ONE = Amount(1)


@given(minimum=MINIMUMS, effort=EFFORTS)
def test_the_least_price_keeps_every_minimum_and_one_less_breaks_one(minimum: Minimum, effort: Effort) -> None:
    price = compute_least_price(minimum, effort)

    def keeps_minima(pay: int) -> bool:
        by_time = pay * 3600 >= minimum.hour * effort.whole
        return pay >= minimum.gradient and pay * 10**12 >= minimum.tflop * effort.flops and by_time

    assert keeps_minima(price)
    assert price == 0 or not keeps_minima(price - 1)


def test_an_hour_counts_what_a_task_takes_beside_its_step() -> None:
    assert compute_hourly_pay(Amount(100), Effort(1, 1 - 1 / 16)) == 100 * HOUR_S / (15 / 16 + OVERHEAD_S) // 1
    assert compute_hourly_pay(Amount(100), Effort(1, 0.0)) == 100 * 3600 * 20


@given(prospects=st.lists(PROSPECTS, max_size=8, unique_by=lambda one: one.job), minimum=MINIMUMS, seed=st.integers())
def test_the_best_pays_most_for_a_second_whatever_the_order(
    prospects: list[Prospect], minimum: Minimum, seed: int
) -> None:
    chosen = find_best_prospect(prospects, minimum)
    fit = [one for one in prospects if one.price >= compute_least_price(minimum, one.effort) and one.worth > 0]
    assert (chosen is None) == (not fit)
    assert chosen is None or all(chosen.worth >= one.worth for one in fit)
    Random(seed).shuffle(prospects)
    assert find_best_prospect(prospects, minimum) == chosen


def test_a_dearer_gradient_that_takes_longer_is_not_better() -> None:
    quick = Prospect("quick", "", Amount(10), Effort(1, 0.05))
    slow = Prospect("slow", "", Amount(50), Effort(1, 1.0))
    assert find_best_prospect([slow, quick], Minimum(ONE)) == quick
    assert find_best_prospect([slow, quick], Minimum(Amount(11))) == slow
    assert find_best_prospect([slow, quick], Minimum(Amount(51))) is None


def test_markets_are_ranked_within_their_token_and_tokens_stand_where_their_first_market_does() -> None:
    assert rank_markets([("a", Fraction(1)), ("b", Fraction(90)), ("a", Fraction(2)), ("b", Fraction(91))]) == [
        2,
        0,
        3,
        1,
    ]
    assert rank_markets([("a", Fraction(1)), ("a", Fraction(1))]) == [0, 1]
    assert rank_markets([]) == []


@pytest.mark.parametrize(
    ("pay", "price", "limits", "reason"),
    [
        (20, "20", {}, None),
        (20, "20", {"min_per_tflop": Amount(10)}, None),
        (19, "19", {"min_per_tflop": Amount(10)}, Guard.CHEAP_FOR_ITS_WORK),
        (20, "20", {"min_per_hour": Amount(3600 * 20)}, None),
        (20, "20", {"min_per_hour": Amount(3600 * 21)}, Guard.CHEAP_FOR_ITS_WORK),
        (20, {"name": "cost", "per_tflop": "10", "ceiling": "90"}, {}, None),
        (19, {"name": "cost", "per_tflop": "10", "ceiling": "90"}, {}, Guard.UNDERPRICED),
        (5, {"name": "controller", "floor": "5", "ceiling": "9", "start": "9", "target_ms": 1}, {}, None),
        (4, {"name": "controller", "floor": "5", "ceiling": "9", "start": "9", "target_ms": 1}, {}, Guard.UNDERPRICED),
    ],
)
def test_an_offer_is_held_against_its_rule_and_the_minimums(pay, price, limits, reason) -> None:  # type: ignore[no-untyped-def]
    """Two TFLOP that take a second here: a cheat's offer under its own rule is found too."""
    effort = Effort(2 * 10**12, 0.95)
    rule = Price.model_validate(price)
    assert too_cheap(Amount(pay), rule, effort, ONE, replace(LIMITS, **limits)) == reason
