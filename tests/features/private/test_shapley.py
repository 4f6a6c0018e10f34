"""Shares by worth: the Shapley value exactly on a few, unbiased and bounded on more, and its pay."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.private import shapley
from gradmarket.market.features.private.holder_rows import compute_pot_weight
from gradmarket.market.features.private.shapley import (
    Worths,
    bound_group_value,
    compute_worth_pay,
    draw_orders,
    estimate_values,
)
from gradmarket.market.terms import Hash, Units

Game = dict[frozenset[int], float]
SEEDS = st.binary(min_size=32, max_size=32).map(Hash)


def game(count: int, seed: int) -> Game:
    """Returns any game of `count` members: the value of every group, and 0 of nobody."""
    drawn = random.Random(seed)
    groups = itertools.chain.from_iterable(itertools.combinations(range(count), size) for size in range(count + 1))
    return {frozenset(group): drawn.uniform(-1, 1) if group else 0.0 for group in groups}


def along(played: Game) -> Callable[[Sequence[int]], list[float]]:
    return lambda order: [
        played[frozenset(order[: size + 1])] - played[frozenset(order[:size])] for size in range(len(order))
    ]


def exact(played: Game, count: int) -> list[float]:
    """The Shapley value by its formula over groups, without orders."""
    found = []
    for one in range(count):
        rest = [other for other in range(count) if other != one]
        whole = 0.0
        for size in range(count):
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            for group in map(frozenset, itertools.combinations(rest, size)):
                whole += weight * (played[group | {one}] - played[group])
        found.append(whole)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_all_orders_give_the_shapley_value(count: int) -> None:
    played = game(count, seed=count)
    every = [order for one in itertools.permutations(range(count)) for order in (one, one[::-1])]
    found = estimate_values(every, along(played)).values
    assert found == pytest.approx(exact(played, count))


@given(count=st.integers(1, 8), draws=st.integers(1, 5), seed=SEEDS, of=st.integers(0, 2**32))
def test_values_add_up_to_all_that_the_round_gained(count: int, draws: int, seed: Hash, of: int) -> None:
    played = game(count, of)
    found = estimate_values(draw_orders(count, draws, seed), along(played))
    assert math.fsum(found.values) == pytest.approx(played[frozenset(range(count))], abs=1e-9)
    assert all(0.0 <= share <= 1.0 for share in found.shares)
    assert math.fsum(found.shares) <= 1.0 + 1e-9
    assert [share > 0 for share in found.shares] == [value > 0 for value in found.values]


def test_estimates_of_many_seeds_are_unbiased_and_their_errors_are_right() -> None:
    played, count = game(5, seed=3), 5
    true = exact(played, count)
    runs = [
        estimate_values(draw_orders(count, 3, Hash(number.to_bytes(32, "big"))), along(played))
        for number in range(3000)
    ]
    for one in range(count):
        found = [run.values[one] for run in runs]
        told = math.sqrt(mean(run.errors[one] ** 2 for run in runs))
        spread = math.sqrt(mean((value - true[one]) ** 2 for value in found))
        assert abs(mean(found) - true[one]) < 5 * spread / math.sqrt(len(runs))
        assert told == pytest.approx(spread, rel=0.1)


@given(count=st.integers(2, 6), draws=st.integers(1, 4), seed=SEEDS, of=st.integers(0, 2**32))
def test_a_member_that_changes_nothing_is_worth_nothing_in_every_draw(
    count: int, draws: int, seed: Hash, of: int
) -> None:
    played = game(count, of)
    idle = {group: played[group - {0}] for group in played}
    found = estimate_values(draw_orders(count, draws, seed), along(idle))
    assert (found.values[0], found.shares[0], found.errors[0] in (0.0, math.inf)) == (0.0, 0.0, True)


@given(count=st.integers(2, 5), of=st.integers(0, 2**32))
def test_two_that_add_the_same_to_every_group_are_worth_the_same(count: int, of: int) -> None:
    """Over all orders exactly; of drawn ones each is unbiased, and so their difference is nothing in the mean."""
    drawn = random.Random(of)
    sizes = [0.0, *(drawn.uniform(-1, 1) for _ in range(count))]
    alike = {group: sizes[len(group)] for group in game(count, 0)}
    every = [order for one in itertools.permutations(range(count)) for order in (one, one[::-1])]
    found = estimate_values(every, along(alike)).values
    assert found == pytest.approx([sizes[-1] / count] * count, abs=1e-9)


@given(count=st.integers(1, 8), draws=st.integers(1, 4), seed=SEEDS, of=st.integers(0, 2**32))
def test_values_of_a_sum_of_games_are_the_sums(count: int, draws: int, seed: Hash, of: int) -> None:
    one, other = game(count, of), game(count, of + 1)
    both = {group: one[group] + other[group] for group in one}
    drawn = draw_orders(count, draws, seed)
    parts = zip(estimate_values(drawn, along(one)).values, estimate_values(drawn, along(other)).values, strict=True)
    assert estimate_values(drawn, along(both)).values == pytest.approx([sum(pair) for pair in parts], abs=1e-9)


@given(count=st.integers(1, 12), draws=st.integers(1, 6), seed=SEEDS)
def test_orders_are_of_all_in_pairs_and_the_same_again(count: int, draws: int, seed: Hash) -> None:
    drawn = draw_orders(count, draws, seed)
    assert len(drawn) == 2 * draws
    assert all(sorted(order) == list(range(count)) for order in drawn)
    assert all(order == back[::-1] for order, back in zip(drawn[::2], drawn[1::2], strict=True))
    assert drawn == draw_orders(count, draws, seed)


def test_another_seed_draws_other_orders() -> None:
    seen = {tuple(draw_orders(6, 1, Hash(bytes([number]) * 32))[0]) for number in range(50)}
    assert len(seen) > 40


@given(before=st.just(0.0) | st.floats(1e-100, 1e9), after=st.floats(allow_subnormal=False))
def test_no_group_is_worth_more_than_the_loss_before(before: float, after: float) -> None:
    """Of differences that no machine rounds to nothing: once torch has computed, subnormal numbers are nothing."""
    found = bound_group_value(before, after)
    assert -before <= found <= before
    if before > 0.0:
        assert (found > 0) == (math.isfinite(after) and after < before)


@given(
    parts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    most=st.integers(0, 2**47).map(Units),
    floor=st.integers(0, 2**47).map(Units),
)
def test_a_round_pays_each_up_to_the_most_and_all_a_third_of_it_each(
    parts: list[float], most: Units, floor: Units
) -> None:
    worths = Worths(tuple(parts), (0.0,) * len(parts))
    paid = [compute_worth_pay(share, len(parts), Units(min(floor, most)), most) for share in worths.shares]
    assert all(0 <= one <= most - min(floor, most) for one in paid)
    assert sum(paid) <= len(parts) * most // 3 + len(parts)
    ranked = sorted(range(len(parts)), key=lambda one: parts[one])
    assert [paid[one] for one in ranked] == sorted(paid)


def test_alike_answers_are_paid_a_third_of_the_most_in_which_the_floor_is() -> None:
    shares = Worths((2.0,) * 4, (0.0,) * 4).shares
    assert [compute_worth_pay(share, 4, Units(0), Units(900)) for share in shares] == [300] * 4
    assert [compute_worth_pay(share, 4, Units(100), Units(900)) for share in shares] == [200] * 4
    assert shapley.compute_worth_pay(1.0, 4, Units(50), Units(900)) == 850
    assert shapley.compute_worth_pay(0.0, 4, Units(50), Units(900)) == 0


@given(
    rows=st.lists(st.integers(2, 200), min_size=2, max_size=20),
    worth=st.lists(st.floats(0.01, 1.0), min_size=20, max_size=20),
    part=st.floats(0.1, 0.9),
)
def test_rows_that_are_split_over_two_wallets_are_paid_as_one_but_for_a_second_floor(
    rows: list[int], worth: list[float], part: float
) -> None:
    """Both halves together are worth the whole, below the ceiling: rows make the pot, not wallets."""
    cap, floor, ceiling, whole = 200, Units(20), Units(10**9), worth[: len(rows)]
    cut = max(1, min(rows[0] - 1, round(part * rows[0])))
    halves = [worth[0] * part, worth[0] * (1 - part), *whole[1:]]

    def paid(told: list[int], values: list[float]) -> list[int]:
        weight = compute_pot_weight(told, cap)
        shares = Worths(tuple(values), (0.0,) * len(values)).shares
        return [floor + compute_worth_pay(share, weight, floor, ceiling) for share in shares]

    one, two = paid(rows, whole), paid([cut, rows[0] - cut, *rows[1:]], halves)
    assert one[0] == ceiling or sum(two[:2]) <= one[0] + floor + 2
    assert two[2:] == pytest.approx(one[1:], abs=2)
