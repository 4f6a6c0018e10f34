"""Strikes decay, so that whoever is suspended comes back by itself; and nobody escapes them by waiting between two."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.rules.strikes import (
    HALF_LIFE_S,
    NONE,
    Strikes,
    add_strike,
    decay_strikes,
    suspended_until,
    worked_off,
)

TIMES = st.lists(st.floats(0.0, 1e6), max_size=30).map(sorted)


def after(times: list[float]) -> Strikes:
    strikes = NONE
    for at in times:
        strikes = add_strike(strikes, at)
    return strikes


def test_five_in_an_hour_suspend_for_a_while_and_four_do_not() -> None:
    hasty = after([0.0, 1.0, 2.0, 3.0, 600.0])
    until = suspended_until(hasty.weight, hasty.at, 5)
    assert 600.0 < until < 600.0 + HALF_LIFE_S
    assert decay_strikes(hasty, until).weight < 5
    four = after([600.0] * 4)
    assert suspended_until(four.weight, four.at, 5) == 0.0


def test_a_worker_without_strikes_is_not_suspended_when_the_clock_goes_back() -> None:
    cleared = worked_off(after([3600.0]), 3600.0)
    assert suspended_until(cleared.weight, cleared.at, 5) == 0.0


def test_strikes_from_a_clock_that_was_ahead_count_from_now_on() -> None:
    ahead = after([3600.0] * 5)
    again = add_strike(ahead, 10.0)
    assert (again.weight, again.at) == (6.0, 10.0)


def test_a_strike_weighs_half_after_its_half_life() -> None:
    assert decay_strikes(after([0.0, 0.0]), HALF_LIFE_S).weight == 1.0


def test_one_strike_suspends_where_one_is_too_many() -> None:
    assert suspended_until(1.0, 0.0, 1) == HALF_LIFE_S


@given(TIMES, st.integers(1, 20))
def test_every_suspension_ends(times: list[float], most: int) -> None:
    strikes = after(times)
    until = suspended_until(strikes.weight, strikes.at, most)
    assert until <= strikes.at + HALF_LIFE_S * math.log2(2 * len(times) + 1)
    assert until == 0.0 or until >= strikes.at
    assert suspended_until(decay_strikes(strikes, until + 1.0).weight, until + 1.0, most) <= until + 1.0


@given(TIMES, st.floats(0.0, 1e6))
def test_the_weight_is_at_most_the_strikes_and_only_falls_between_them(times: list[float], later: float) -> None:
    strikes = after(times)
    now = strikes.at + later
    assert 0.0 <= decay_strikes(strikes, now).weight <= strikes.weight <= len(times)
    assert decay_strikes(decay_strikes(strikes, now), now) == decay_strikes(strikes, now)


@given(TIMES, st.floats(0.0, 1e5))
def test_an_accepted_gradient_makes_up_for_one(times: list[float], later: float) -> None:
    strikes = after(times)
    now = strikes.at + later
    again = worked_off(add_strike(strikes, now), now)
    assert math.isclose(again.weight, decay_strikes(strikes, now).weight, abs_tol=1e-9)
    assert worked_off(NONE, now).weight == 0.0


@given(st.lists(st.booleans(), max_size=20))
def test_withheld_answers_are_among_the_strikes(kinds: list[bool]) -> None:
    strikes = NONE
    for withheld in kinds:
        strikes = add_strike(strikes, 1.0, withheld)
    assert (strikes.weight, strikes.withheld) == (len(kinds), sum(kinds))


def test_a_clock_that_goes_back_adds_nothing() -> None:
    assert add_strike(after([100.0]), 50.0) == Strikes(2.0, 0.0, 50.0)
