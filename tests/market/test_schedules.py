"""Learning rates, and the functions that do not come from the C library."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.arithmetic import SHAPES, compute_learning_rate, half_cosine
from gradmarket.market.gradient.optimizers._adam import compute_power
from gradmarket.market.gradient.optimizers.adafactor import compute_real_power

NAMES = st.sampled_from(sorted(SHAPES))
PINNED = {
    0.1: "0x1.f378709a22a80p-1",
    0.25: "0x1.b504f333f9de6p-1",
    1 / 3: "0x1.8000000000001p-1",
    0.9: "0x1.90f1ecbbab012p-6",
}


@given(st.floats(0, 1))
def test_half_cosine_is_half_a_cosine(progress: float) -> None:
    assert half_cosine(progress) == pytest.approx((1 + math.cos(math.pi * progress)) / 2, abs=1e-15)


@pytest.mark.parametrize(("progress", "bits"), PINNED.items())
def test_half_cosine_same_bits(progress: float, bits: str) -> None:
    assert half_cosine(progress).hex() == bits


@given(st.floats(0, 1), st.integers(0, 100_000))
def test_power_is_a_power(base: float, exponent: int) -> None:
    assert compute_power(base, exponent) == pytest.approx(base**exponent, rel=1e-12, abs=1e-300)


@given(st.floats(0.5, 1), st.integers(0, 20))
def test_a_small_power_is_exact_but_for_its_roundings(base: float, exponent: int) -> None:
    exact = Fraction(base) ** exponent
    assert abs(Fraction(compute_power(base, exponent)) - exact) <= exact * (2 * exponent + 1) / 2**53


@given(NAMES, st.floats(1e-6, 10), st.integers(1, 500), st.integers(0, 600), st.data())
def test_a_rate_is_positive_and_at_most_lr(name: str, lr: float, rounds: int, warmup: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, rounds - 1))
    assert 0 < compute_learning_rate(name, lr, number, rounds, warmup) <= lr


@given(NAMES, st.integers(2, 200), st.integers(0, 50))
def test_up_to_the_top_and_never_up_again(name: str, rounds: int, warmup: int) -> None:
    rates = [compute_learning_rate(name, 1.0, number, rounds, warmup) for number in range(rounds)]
    top = min(warmup, rounds)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert all(found == 1.0 for found in rates[top : top + 1])


def test_by_hand() -> None:
    assert [compute_learning_rate("constant", 2.0, number, 3) for number in range(3)] == [2.0, 2.0, 2.0]
    assert [compute_learning_rate("linear", 1.0, number, 4) for number in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [compute_learning_rate("linear", 1.0, number, 4, warmup=2) for number in range(4)] == [0.5, 1.0, 1.0, 0.5]
    assert compute_learning_rate("cosine", 1.0, 3, 6) == pytest.approx(0.5)
    assert [compute_learning_rate("cosine", 1.0, number, 2, warmup=4) for number in range(2)] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("name", "number", "rounds"), [("steps", 0, 1), ("", 0, 1), ("cosine", 3, 3), ("cosine", -1, 3)]
)
def test_no_such_rate(name: str, number: int, rounds: int) -> None:
    with pytest.raises(JobRefused):
        compute_learning_rate(name, 0.1, number, rounds)


@given(st.integers(1, 10**6), st.floats(-1.0, 1.0))
def test_a_power_of_a_real_exponent_is_the_c_librarys_within_its_last_digits(base: int, exponent: float) -> None:
    assert compute_real_power(base, exponent) == pytest.approx(base**exponent, rel=1e-14)
