"""Sums that are exact, the same in any order, and cannot overflow."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.accumulate import FEW, MAX_ADDENDS, STEP, Accumulator, compute_limb_units, quick_mean
from gradmarket.market.gradient.arrays import CHUNK, Vector

BOUNDS = st.integers(-60, 60).map(lambda exponent: 2.0**exponent) | st.floats(1e-12, 1e12)


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


def summed(vectors: list[Vector], bound: float, planned: int) -> Accumulator:
    total = Accumulator(3, bound, planned)
    for vector in vectors:
        total.add(vector)
    return total


def same(left: Accumulator, right: Accumulator) -> bool:
    """Returns whether the sums have equal bits, a stricter test than that of their means."""
    ours, theirs = ([sums.tobytes() for sums in total._sums] for total in (left, right))
    return ours == theirs and left.count == right.count


@given(addends(), st.randoms(use_true_random=False))
def test_any_order_gives_the_same_bits(case: tuple[float, list[Vector]], random: object) -> None:
    bound, vectors = case
    shuffled = list(vectors)
    random.shuffle(shuffled)
    assert same(summed(vectors, bound, 12), summed(shuffled, bound, 12))


def test_float32_sums_do_depend_on_the_order() -> None:
    """The reason for the accumulator: the plain sum of the same addends differs."""
    vectors = list(np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32))
    assert sum(vectors).tobytes() != sum(vectors[::-1]).tobytes()
    assert same(summed(vectors, 8.0, 8), summed(vectors[::-1], 8.0, 8))


def is_rounded(found: float, exact: Fraction) -> bool:
    """Returns whether `found` is `exact` rounded to float32, but for the effect of three float64 roundings on a tie."""
    rounding = max(abs(exact) / 2**24, Fraction(1, 2**150)) * (1 + Fraction(1, 2**26))
    return abs(Fraction(float(found)) - exact) <= rounding


@given(addends(), st.integers(12, MAX_ADDENDS))
def test_the_mean_is_the_exact_one_rounded(case: tuple[float, list[Vector]], planned: int) -> None:
    bound, vectors = case
    for element, found in enumerate(summed(vectors, bound, planned).mean()):
        exact = sum(Fraction(float(vector[element])) for vector in vectors) / len(vectors)
        assert is_rounded(found, exact)


@pytest.mark.parametrize("bound", [1.0, 1000.0, 1e9])
@pytest.mark.parametrize("small", [1e-9, 1e-12, 1e-30, 2.0**-149])
def test_values_far_under_the_bound_are_not_lost(bound: float, small: float) -> None:
    """The default norm bound is 1000, the largest 1e9."""
    values = [small, 3 * small, -small / 2, bound / 2, -bound / 2]
    vectors = [np.full(3, value, np.float32) for value in values]
    exact = sum(Fraction(float(vector[0])) for vector in vectors) / len(vectors)
    assert is_rounded(summed(vectors, bound, 8).mean()[0], exact)
    assert exact > 0


def test_limbs_that_take_from_each_other_lose_nothing() -> None:
    """One addend's rest in a fine limb takes away nearly all of a coarse one."""
    unit = compute_limb_units(1000.0, 64)[0]
    rows = [unit] + [-unit / 2 + unit * 2.0**-24] * 2 + [-unit * 2.0**-60]
    exact = sum(Fraction(float(np.float32(row))) for row in rows) / len(rows)
    assert is_rounded(summed([np.full(3, row, np.float32) for row in rows], 1000.0, 64).mean()[0], exact)


@given(BOUNDS, st.integers(1, MAX_ADDENDS))
@example(1.0, MAX_ADDENDS)
@example(1.0, 1)
def test_an_exact_sum_cannot_overflow(bound: float, planned: int) -> None:
    """The largest addend, `planned` times, stays where multiples of every unit are exact; the last one's are all."""
    reach = Fraction(Accumulator(1, bound, planned).limit)
    for unit in map(Fraction, compute_limb_units(bound, planned)):
        assert reach <= 2**51 * unit
        assert planned * reach <= 2**53 * unit
        reach = unit / 2
    assert unit <= Fraction(1, 2**149)


@given(BOUNDS, st.integers(2, 40), st.sampled_from([1.0, -1.0]))
def test_full_of_the_largest_it_is_exact(bound: float, planned: int, sign: float) -> None:
    total = Accumulator(1, bound, planned)
    largest = np.array([sign * total.limit], np.float32)
    for _ in range(planned):
        total.add(largest)
    assert total._sum_limbs(0, slice(0, 1))[0] == sign * total.limit * planned
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
def test_a_refused_vector_leaves_the_sum_unchanged(vector: Vector) -> None:
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
    assert not total._sums


def test_a_sum_that_was_cleared_is_a_new_one() -> None:
    total = Accumulator(3, 1000.0, 4)
    total.add(np.full(3, 1e-38, np.float32))
    total.clear()
    total.add(np.full(3, 2.0, np.float32))
    assert total.mean().tolist() == [2.0] * 3


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


@given(addends())
def test_together_is_as_one_after_the_other(case: tuple[float, list[Vector]]) -> None:
    bound, vectors = case
    together = Accumulator(3, bound, 12)
    together.extend(vectors)
    assert same(together, summed(vectors, bound, 12))


def test_together_refuses_what_add_refuses() -> None:
    good, beyond = np.ones(3, np.float32), np.full(3, 9, np.float32)
    for vectors in ([good] * 3, [good, beyond], [good, np.ones(2, np.float32)]):
        with pytest.raises(PayloadRefused):
            Accumulator(3, 1.0, 2).extend(vectors)


@given(addends())
def test_a_quick_mean_has_the_bits_of_the_exact_one_or_gives_up(case: tuple[float, list[Vector]]) -> None:
    bound, vectors = case
    quick = np.empty(3, np.float32)
    for part in quick_mean(vectors, bound, quick):
        assert part == slice(0, 3)
        assert len(vectors) > 1
        return
    assert quick.tobytes() == summed(vectors, bound, 12).mean().tobytes()


def test_a_quick_mean_gives_up_just_where_an_addition_rounds() -> None:
    ones, tiny = np.ones(2 * STEP, np.float32), np.zeros(2 * STEP, np.float32)
    tiny[STEP] = 2.0**-60
    mean = np.empty(2 * STEP, np.float32)
    assert list(quick_mean([ones, tiny], 2.0, mean)) == [slice(STEP, 2 * STEP)]
    assert (mean[:STEP] == 0.5).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -9.0])
def test_a_quick_mean_refuses_what_an_exact_one_refuses(bad: float) -> None:
    good, wrong = np.ones(5, np.float32), np.ones(5, np.float32)
    wrong[3] = bad
    with pytest.raises(PayloadRefused, match="not within 8"):
        list(quick_mean([good, wrong], 4.0, np.empty(5, np.float32)))


def test_a_quick_mean_of_negative_zeros_is_zero_as_the_exact_one() -> None:
    zeros, mean = np.full(3, -0.0, np.float32), np.empty(3, np.float32)
    assert list(quick_mean([zeros], 1.0, mean)) == []
    assert mean.tobytes() == bytes(12)


def test_a_quick_mean_takes_vectors_that_are_read_only_beside_others() -> None:
    ones, twos, mean = np.ones(5, np.float32), np.full(5, 3.0, np.float32), np.empty(5, np.float32)
    twos.flags.writeable = False
    assert list(quick_mean([ones, twos], 4.0, mean)) == []
    np.testing.assert_array_equal(mean, np.full(5, 2.0, np.float32))


@pytest.mark.parametrize("count", [0, FEW + 1])
def test_a_quick_mean_refuses_more_than_a_few(count: int) -> None:
    with pytest.raises(PayloadRefused):
        quick_mean([np.ones(5, np.float32)] * count, 4.0, np.empty(5, np.float32))
