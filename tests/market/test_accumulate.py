"""Sums that are the same in any order and cannot overflow."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.accumulate import MAX_ADDENDS, Accumulator, units
from gradmarket.market.gradient.arrays import CHUNK, Vector

BOUNDS = st.integers(-60, 60).map(lambda exponent: 2.0**exponent) | st.floats(1e-12, 1e12)
LIMBS = st.integers(1, 3)


@st.composite
def addends(draw: st.DrawFn, most: int = 12) -> tuple[float, list[Vector]]:
    """A bound and vectors of three elements that may use all of it."""
    bound = draw(BOUNDS)
    inside = (
        float(np.nextafter(np.float32(bound), np.float32(0))) if np.float32(bound) > bound else float(np.float32(bound))
    )
    rows = draw(
        st.lists(st.lists(st.floats(-inside, inside, width=32), min_size=3, max_size=3), min_size=1, max_size=most)
    )
    return bound, [np.array(row, np.float32) for row in rows]


def summed(vectors: list[Vector], bound: float, planned: int, limbs: int = 1) -> Accumulator:
    total = Accumulator(3, bound, planned, limbs)
    for vector in vectors:
        total.add(vector)
    return total


def same(left: Accumulator, right: Accumulator) -> bool:
    """Down to the bits of the sums themselves, which say more than their mean."""
    return left._sums.tobytes() == right._sums.tobytes() and left.count == right.count


@given(addends(), st.randoms(use_true_random=False), LIMBS)
def test_any_order_gives_the_same_bits(case: tuple[float, list[Vector]], random: object, limbs: int) -> None:
    bound, vectors = case
    shuffled = list(vectors)
    random.shuffle(shuffled)
    assert same(summed(vectors, bound, 12, limbs), summed(shuffled, bound, 12, limbs))


def test_float32_sums_do_depend_on_the_order() -> None:
    """What the accumulator is for: the plain sum of the same addends differs."""
    vectors = list(np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32))
    assert sum(vectors).tobytes() != sum(vectors[::-1]).tobytes()
    assert same(summed(vectors, 8.0, 8), summed(vectors[::-1], 8.0, 8))


@given(addends(), st.integers(12, MAX_ADDENDS), LIMBS)
def test_the_mean_is_within_its_stated_error(case: tuple[float, list[Vector]], planned: int, limbs: int) -> None:
    bound, vectors = case
    total = summed(vectors, bound, planned, limbs)
    quantum = Fraction(bound) * planned**limbs / 2 ** (51 * limbs)
    for element, found in enumerate(total.mean()):
        exact = sum(Fraction(float(vector[element])) for vector in vectors) / len(vectors)
        rounding = abs(exact) * Fraction(1, 2**24) * Fraction(1001, 1000) + Fraction(1, 2**149)
        assert abs(Fraction(float(found)) - exact) <= quantum + rounding


@given(BOUNDS, st.integers(1, MAX_ADDENDS), LIMBS)
@example(1.0, MAX_ADDENDS, 3)
@example(1.0, 1, 1)
def test_it_cannot_overflow(bound: float, planned: int, limbs: int) -> None:
    """The largest addend, `planned` times, stays where multiples of every unit are exact."""
    reach = Fraction(Accumulator(1, bound, planned, limbs).limit)
    for unit in map(Fraction, units(bound, planned, limbs)):
        assert reach <= 2**51 * unit
        assert planned * reach <= 2**53 * unit
        reach = unit / 2


@given(BOUNDS, st.integers(2, 40), st.sampled_from([1.0, -1.0]))
def test_full_of_the_largest_it_is_exact(bound: float, planned: int, sign: float) -> None:
    total = Accumulator(1, bound, planned)
    largest = np.array([sign * total.limit], np.float32)
    for _ in range(planned):
        total.add(largest)
    assert total._sum(0, slice(0, 1), np.empty(1, np.int64), np.empty(1))[0] == sign * total.limit * planned
    assert total.mean()[0] == largest[0]


NOT_ADDENDS = {
    "NaN": np.array([0, np.nan, 0], np.float32),
    "infinite": np.array([0, 0, np.inf], np.float32),
    "minus infinite": np.array([-np.inf, 0, 0], np.float32),
    "over the limit": np.array([0, np.nextafter(np.float32(16), np.float32(17)), 0], np.float32),
    "under the limit": np.array([0, -np.nextafter(np.float32(16), np.float32(17)), 0], np.float32),
    "float64": np.zeros(3),
    "shorter": np.zeros(2, np.float32),
    "another shape": np.zeros((3, 1), np.float32),
}


@pytest.mark.parametrize("vector", NOT_ADDENDS.values(), ids=NOT_ADDENDS.keys())
def test_what_does_not_fit_changes_nothing(vector: Vector) -> None:
    total = summed([np.ones(3, np.float32)], 10.0, 4)
    with pytest.raises(PayloadRefused):
        total.add(vector)
    assert same(total, summed([np.ones(3, np.float32)], 10.0, 4))


def test_a_late_nan_leaves_the_chunks_before_it_untouched() -> None:
    total = Accumulator(3 * CHUNK, 1.0, 4)
    spoilt = np.ones(3 * CHUNK, np.float32)
    spoilt[-1] = np.nan
    with pytest.raises(PayloadRefused):
        total.add(spoilt)
    assert not total._sums.any()


def test_counts_are_kept() -> None:
    total, one = Accumulator(3, 1.0, 2), np.ones(3, np.float32)
    with pytest.raises(PayloadRefused, match="nothing was added"):
        total.mean()
    total.add(one)
    total.add(one)
    with pytest.raises(PayloadRefused, match="2 addends already"):
        total.add(one)


@pytest.mark.parametrize(
    ("bound", "planned"), [(0.0, 1), (-1.0, 1), (np.inf, 1), (np.nan, 1), (1.0, 0), (1.0, MAX_ADDENDS + 1)]
)
def test_no_sum_without_a_range(bound: float, planned: int) -> None:
    with pytest.raises(PayloadRefused):
        Accumulator(1, bound, planned)


@given(addends(), LIMBS)
def test_together_is_as_one_after_the_other(case: tuple[float, list[Vector]], limbs: int) -> None:
    bound, vectors = case
    together = Accumulator(3, bound, 12, limbs)
    together.extend(vectors)
    assert same(together, summed(vectors, bound, 12, limbs))


def test_together_refuses_what_add_refuses() -> None:
    good, beyond = np.ones(3, np.float32), np.full(3, 9, np.float32)
    for vectors in ([good] * 3, [good, beyond], [good, np.ones(2, np.float32)]):
        with pytest.raises(PayloadRefused):
            Accumulator(3, 1.0, 2).extend(vectors)
