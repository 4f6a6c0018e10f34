"""A patient attacker over two hundred rounds: caught, or bounded by honest noise; honest operators never caught."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.drift import (
    Contribution,
    Drift,
    after_round,
    compute_differences,
    compute_lean_limit,
    compute_unseen_push,
    find_earliest_alarm,
    has_comparable_groups,
    list_leaning_operators,
    sketch_gradient,
)
from gradmarket.market.gradient import payload_layout
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.terms import Hash

ROUNDS, TASKS, SIZE = 200, 6, 300
OPERATORS = ("ann", "bea", "cem", "mallory")
SECRET = Hash(bytes(range(32)))
SIGMA = 1.0
"""The length of an honest answer's error."""


LAYOUT = Layout(
    (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (SIZE,), "gradient"), LayoutEntry("m", (2,), "buffer"))
)


def sketched(gradient: np.ndarray, loss: float = 0.0) -> np.ndarray:
    """By the real projection of an answer's one shard."""
    whole = np.concatenate([[loss], gradient, [loss, loss]]).astype(np.float32)
    return sketch_gradient(LAYOUT, [(0, whole)], SECRET)


PROJECTION = np.stack([sketched(row) for row in np.eye(SIZE)])
"""The sketch is linear, so its rows are sketched once."""


class Market:
    """Rounds of a job whose gradients change; each task is answered by one operator, drawn by chance."""

    def __init__(self, seed: int, bias: float, noise: float = SIGMA) -> None:
        self.random = np.random.default_rng(seed)
        direction = self.random.standard_normal(SIZE)
        self.bias = bias * direction / np.linalg.norm(direction)
        self.noise, self.leans, self.pushed = noise, dict[str, Drift](), np.zeros(SIZE)

    def error(self, length: float) -> np.ndarray:
        return length * self.random.standard_normal(SIZE) / math.sqrt(SIZE)

    def round(self) -> None:
        honest = self.random.standard_normal(SIZE)
        answers = []
        for operator in self.random.choice(OPERATORS, TASKS):
            hostile = operator == "mallory"
            given_answer = honest + self.error(self.noise if hostile else SIGMA) + (self.bias if hostile else 0.0)
            self.pushed += self.bias / TASKS if hostile else 0.0
            answers.append(Contribution(frozenset({str(operator)}), given_answer @ PROJECTION))
        self.leans = after_round(self.leans, answers)

    def caught_after(self, rounds: int = ROUNDS) -> int | None:
        for number in range(1, rounds + 1):
            self.round()
            if list_leaning_operators(self.leans):
                assert list_leaning_operators(self.leans) == ["mallory"]
                return number
        return None


@pytest.mark.parametrize("seed", range(3))
def test_honest_operators_raise_no_alarm(seed: int) -> None:
    market = Market(seed, bias=0.0)
    assert market.caught_after() is None
    assert all(0.3 < lean.ratio < 2.5 for lean in market.leans.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_lean_as_large_as_honest_errors_is_caught_within_two_hundred_rounds(seed: int) -> None:
    caught = Market(seed, bias=1.0).caught_after()
    assert caught is not None
    assert 20 < caught < ROUNDS


@pytest.mark.parametrize(("bias", "noise"), [(0.05, 1.0), (0.2, 1.0), (1.0, 8.0), (3.0, 30.0)])
def test_an_undetected_lean_moves_the_run_by_no_more_than_the_bound(bias: float, noise: float) -> None:
    """Under a small lean as under one that hides in noise of its own."""
    market = Market(5, bias, noise)
    market.caught_after()
    lean = market.leans["mallory"]
    bound = compute_lean_limit(lean.rounds, len(OPERATORS)) * math.sqrt(lean.squares)
    share = np.linalg.norm(market.pushed) / (bias * ROUNDS)
    assert np.linalg.norm(market.pushed) <= share * bound * 1.4, "1.4: what a sketch may shorten"
    assert lean.moved(share) <= share * bound


def test_the_bound_grows_as_the_square_root_of_the_rounds() -> None:
    def bound(rounds: int) -> float:
        return compute_lean_limit(rounds, 8) * math.sqrt(rounds)

    assert bound(20_000) / bound(200) < 14
    assert 20_000 / 200 == 100


def test_a_smaller_lean_takes_longer_by_the_formula() -> None:
    """limit^2 (1 + s^2 / t^2) rounds; s^2, of a difference of two means, is a little under 1 here."""
    for bias in (2.0, 0.5):
        caught = Market(7, bias).caught_after(1000)
        assert caught == pytest.approx(compute_lean_limit(200, len(OPERATORS)) ** 2 * (1 + 0.9 / bias**2), rel=0.4)


@pytest.mark.parametrize(("operators", "first"), [(4, 39), (8, 40), (16, 42), (1000, 51)])
def test_no_alarm_comes_before_the_earliest_round_and_a_pure_lean_raises_one_there(operators: int, first: int) -> None:
    assert find_earliest_alarm(operators) == first
    lean, others = Drift(np.zeros(1)), {f"other {number}": Drift(np.zeros(1)) for number in range(operators - 1)}
    for number in range(1, first + 1):
        lean = lean.after(np.ones(1))
        assert bool(list_leaning_operators({**others, "mallory": lean})) == (number == first)


def together(rounds: int, answers: int, hostile: int, push: float, seed: int) -> bool:
    """Returns whether `hostile` operators, one answer of each a round, are found when they push by `push` together."""
    chance, leans = np.random.default_rng(seed), dict[str, Drift]()
    lean = push * answers / hostile / rounds * np.eye(64)[0]
    for _ in range(rounds):
        errors = chance.standard_normal((answers, 64)) / 8.0
        given_answers = errors + np.where(np.arange(answers)[:, None] < hostile, lean, 0.0)
        told = [Contribution(frozenset({str(number)}), line) for number, line in enumerate(given_answers)]
        leans = after_round(leans, told)
        if list_leaning_operators(leans):
            return True
    return False


@pytest.mark.parametrize(("answers", "hostile"), [(16, 7), (16, 1), (6, 2)])
def test_the_undetected_push_of_several_is_as_computed(answers: int, hostile: int) -> None:
    most = compute_unseen_push(ROUNDS, answers, hostile, answers)
    assert not together(ROUNDS, answers, hostile, 0.9 * most, seed=1)
    assert together(ROUNDS, answers, hostile, 1.15 * most, seed=2)


def test_the_odds_of_what_is_pushed_unseen() -> None:
    """Seven of sixteen push 83 lengths in 200 rounds, where the errors of honest answers alone come to 3.5."""
    assert compute_unseen_push(200, 16, 7, 16) == pytest.approx(83.2, abs=0.1)
    assert (
        compute_unseen_push(200, 16, 1, 16) < compute_unseen_push(200, 16, 4, 16) < compute_unseen_push(200, 16, 8, 16)
    )
    assert (
        compute_unseen_push(find_earliest_alarm(16) - 1, 16, 7, 16)
        == compute_unseen_push(200, 8, 8, 8)
        == compute_unseen_push(200, 1, 0, 9)
        == math.inf
    )


@given(st.integers(0, 2**32))
def test_random_signs_exceed_the_limit_no_more_often_than_the_bound(seed: int) -> None:
    """Sizes of any kind: here from 2^-20 to 2^20, in one dimension, where sums of signs are longest."""
    chance = np.random.default_rng(seed)
    steps = np.exp2(chance.uniform(-20, 20, 40)) * chance.choice([-1.0, 1.0], (2000, 40))
    leans = np.abs(steps.cumsum(1)) / np.sqrt(np.square(steps).cumsum(1))
    assert (leans >= 3.0).mean() <= 1.2 * 2 * math.exp(-4.5)


def test_a_change_of_direction_is_forgiven_as_noise_is() -> None:
    lean = Drift(np.zeros(2))
    for step in range(100):
        lean = lean.after(np.array([(-1.0) ** step, 0.0]))
    assert lean.ratio == 0.0
    for _ in range(100):
        lean = lean.after(np.array([1.0, 0.0]))
    assert lean.ratio == pytest.approx(100 / math.sqrt(200))


def test_only_the_gradient_is_sketched_and_every_shard_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = np.random.default_rng(0).standard_normal(SIZE)
    whole = sketched(gradient)
    assert np.array_equal(whole, sketched(gradient, loss=3.0))
    assert np.linalg.norm(whole) == pytest.approx(np.linalg.norm(gradient), rel=0.4)
    monkeypatch.setattr(payload_layout, "SHARD_ELEMENTS", 128)
    cut = Layout(LAYOUT.entries)
    flat = np.concatenate([[0.0], gradient, [0.0, 0.0]]).astype(np.float32)
    shards = [(index, flat[part]) for index, part in enumerate(cut.shards)]
    assert len(shards) == 3
    assert np.linalg.norm(sketch_gradient(cut, shards, SECRET)) == pytest.approx(np.linalg.norm(gradient), rel=0.4)
    without = sketch_gradient(cut, shards[:2], SECRET) + sketch_gradient(cut, shards[2:], SECRET)
    assert np.allclose(without, sketch_gradient(cut, shards, SECRET))


def test_answers_of_the_same_operators_are_not_comparable() -> None:
    ann, both = frozenset({"ann"}), frozenset({"ann", "bea"})
    assert has_comparable_groups([ann, both])
    assert not has_comparable_groups([both, both])
    assert not has_comparable_groups([])


def test_a_round_without_others_to_compare_has_no_lean() -> None:
    one = Contribution(frozenset({"ann"}), np.ones(64))
    both = Contribution(frozenset({"ann", "bea"}), np.zeros(64))
    assert compute_differences([one]) == {}
    assert list(compute_differences([one, both])) == ["bea"]
    assert after_round({}, [one]) == {}


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=30))
def test_a_lean_is_at_most_the_square_root_of_its_rounds(steps: list[list[float]]) -> None:
    """Cauchy and Schwarz: so nobody is over the limit before round limit^2, whatever happens."""
    lean = Drift(np.zeros(3))
    for step in steps:
        lean = lean.after(np.array(step))
    assert lean.ratio <= math.sqrt(lean.rounds) * (1 + 1e-9)
    assert compute_lean_limit(30, 1) > math.sqrt(30)
