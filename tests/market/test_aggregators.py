"""Each robust merge follows its formula, bears its promised hostile answers, and holds no model."""

import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.aggregators import Band, _columns, krum, load_aggregator
from gradmarket.market.gradient.aggregators import _gram as gram
from gradmarket.market.gradient.aggregators import _sorting as sorting
from gradmarket.market.gradient.arrays import Vector

ROBUST = ("trimmed_mean", "median", "krum", "geometric_median", "centered_clip")
SIZE = 24


@dataclass(frozen=True)
class Shard:
    """Answers in memory; the last `buffers` elements are no gradient."""

    answers: list[Vector]
    buffers: int = 0
    addends: int = 64

    @property
    def bands(self) -> tuple[Band, ...]:
        edge = self.answers[0].size - self.buffers
        return Band(slice(0, edge), 1e6), Band(slice(edge, self.answers[0].size), 2.0**40, False)

    def rows(self) -> Iterator[Vector]:
        return iter(self.answers)


def merged(name: str, answers: list[Vector], buffers: int = 0, **settings: Any) -> Vector:
    rule = load_aggregator(name)
    return next(rule.aggregate([Shard(answers, buffers)], rule.Settings(**settings)))


def normal(seed: int, count: int, size: int = SIZE) -> list[Vector]:
    return list(np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32))


def exact(answers: list[Vector]) -> np.ndarray:
    return np.stack(answers).astype(np.float64)


@pytest.mark.parametrize("rows", range(1, 11))
def test_every_network_sorts_every_column_of_zeros_and_ones(rows: int) -> None:
    """Which proves it for any values (Knuth 5.3.4, theorem Z), for every range of wanted places."""
    columns_of = [np.array(column, np.float32) for column in zip(*product((0.0, 1.0), repeat=rows), strict=True)]
    expected = np.sort(np.stack(columns_of), axis=0)
    for first in range(rows):
        for last in range(first + 1, rows + 1):
            found = sorting.Sorter(rows, first, last).sort_middle(columns_of)
            assert np.array_equal(found, expected[first:last])


def test_eight_rows_take_nineteen_comparators_and_their_median_fewer_results() -> None:
    assert len(sorting.build_sorting_network(8)) == 19
    results = [smaller + larger for _, _, smaller, larger in sorting.build_selection_network(8, 3, 5)]
    assert sum(results) < 2 * 19 - 4


@given(st.integers(0, 2**32), st.integers(1, 40), st.data())
def test_the_middle_is_numpys(seed: int, count: int, data: st.DataObject) -> None:
    answers = normal(seed, count)
    trim = data.draw(st.integers(0, (count - 1) // 2))
    kept = np.sort(exact(answers), axis=0)[trim : count - trim]
    np.testing.assert_allclose(merged("trimmed_mean", answers, trim=trim), kept.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merged("median", answers), np.median(exact(answers), axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", ["trimmed_mean", "median"])
def test_the_sign_of_a_zero_shows_no_order(name: str) -> None:
    plus, minus = np.zeros(3, np.float32), -np.zeros(3, np.float32)
    for answers in ([plus, minus, minus], [minus, minus, plus], [minus, plus, minus], [minus] * 3):
        assert merged(name, answers).tobytes() == plus.tobytes()


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(-30, 30))
def test_the_gram_matrix_is_that_of_the_gradients(seed: int, count: int, exponent: int) -> None:
    answers = [np.float32(2.0**exponent) * answer for answer in normal(seed, count)]
    found = gram.compute_gram([Shard(answers, buffers=4)])
    gradients = exact(answers)[:, :-4]
    np.testing.assert_allclose(found, gradients @ gradients.T, rtol=1e-4, atol=1e-4 * 2.0 ** (2 * exponent))
    assert np.array_equal(found, found.T)


def test_the_gram_matrix_is_exact_for_whole_numbers_of_any_size() -> None:
    """Far more columns than one product takes, with sums beyond 2^53."""
    random = np.random.default_rng(0)
    numbers = random.integers(-(2**19) + 1, 2**19, (3, 3 * gram.COLUMNS + 5))
    numbers[:, 0] = 2**18 + 1
    expected = [[sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in numbers] for x in numbers]
    assert gram.compute_gram([Shard(list(numbers.astype(np.float32)))]).tolist() == [
        [float(n) for n in row] for row in expected
    ]
    assert max(max(row) for row in expected) > 2**53


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4))
def test_krum_takes_the_least_scores(seed: int, hostile: int, chosen: int) -> None:
    answers = normal(seed, max(2 * hostile + 3, chosen + hostile + 2))
    points = exact(answers)
    distances = np.square(points[:, None] - points[None]).sum(axis=2)
    near = len(answers) - hostile - 2
    scores = [np.sort(np.delete(row, index))[:near].sum() for index, row in enumerate(distances)]
    best = points[np.argsort(scores, kind="stable")[:chosen]].mean(axis=0)
    found = merged("krum", answers, hostile=hostile, chosen=chosen)
    if near > 1:  # with one neighbour the nearest two always share a score
        np.testing.assert_allclose(found, best, rtol=1e-5, atol=1e-6)
    if chosen == 1:
        assert any(np.array_equal(found, answer) for answer in answers)


def test_krum_takes_the_shorter_of_equal_scores_and_the_first_by_bits_of_equal_lengths() -> None:
    settings = krum.Settings(hostile=1)
    points = [np.array(point, np.float32) for point in ([3, 0], [1, 0], [0, 9], [0, -8], [40, 40])]
    for order in ([0, 1, 2, 3, 4], [1, 0, 4, 3, 2], [4, 3, 2, 1, 0]):
        shard = Shard([points[index] for index in order])
        products = gram.compute_gram([shard])
        weights = krum.compute_krum_weights(products, gram.rank_answers([shard], products), settings)
        assert sum(weights) == 1.0
        assert order[weights.index(1.0)] == 1
    twins = [np.array([1, 0], np.float32), np.array([0, 1], np.float32)]
    ranked = [
        gram.rank_answers([Shard(list(pair))], gram.compute_gram([Shard(list(pair))])) for pair in (twins, twins[::-1])
    ]
    assert ranked[0] == ranked[1][::-1]


@given(st.integers(0, 2**32), st.integers(3, 9))
def test_the_geometric_median_is_where_the_pulls_cancel(seed: int, count: int) -> None:
    answers = normal(seed, count)
    found = merged("geometric_median", answers, steps=1000, rest=1e-12)
    away = exact(answers) - found
    lengths = np.linalg.norm(away, axis=1)
    assert np.linalg.norm((away / lengths[:, None]).sum(axis=0)) < 1e-2 or lengths.min() < 1e-3


def clipped(points: np.ndarray, radius: float, steps: int) -> np.ndarray:
    """CenteredClip as the paper writes it, on the points themselves."""
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    spread = np.median(distances, axis=1)
    centre = points[spread <= spread.min() * (1 + 1e-9)].mean(axis=0)
    for _ in range(steps):
        away = points - centre
        share = np.minimum(1.0, radius / np.maximum(np.linalg.norm(away, axis=1), 1e-30))
        centre = centre + (away * share[:, None]).mean(axis=0)
    return centre


@given(st.integers(0, 2**32), st.floats(0.5, 20), st.integers(1, 8))
def test_centered_clip_is_the_papers(seed: int, radius: float, steps: int) -> None:
    answers = normal(seed, 11)
    found = merged("centered_clip", answers, radius=radius, steps=steps)
    np.testing.assert_allclose(found, clipped(exact(answers), radius, steps), rtol=1e-4, atol=1e-5)


HOSTILE = {
    "far": lambda _: [np.full(SIZE, 1e5, np.float32)] * 3,
    "flipped": lambda honest: [np.float32(-1000) * answer for answer in honest[:3]],
    "opposed": lambda _: [np.full(SIZE, sign * 1e5, np.float32) for sign in (1, -1, 1)],
    "one huge element": lambda _: [np.eye(SIZE, dtype=np.float32)[0] * np.float32(1e6)] * 3,
}
BEARS_THREE = {
    "trimmed_mean": {"trim": 3},
    "median": {"hostile": 3},
    "krum": {"hostile": 3},
    "geometric_median": {"hostile": 3},
    "centered_clip": {},
}


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("attack", HOSTILE)
@given(seed=st.integers(0, 2**16))
def test_three_hostile_answers_of_twelve_stay_without_effect(name: str, attack: str, seed: int) -> None:
    """The merge stays within the honest answers' spread of their mean; the plain mean does not."""
    honest = [answer + np.float32(2) for answer in normal(seed, 9)]
    answers = [*honest[:4], *HOSTILE[attack](honest), *honest[4:]]
    centre = exact(honest).mean(axis=0)
    spread = max(float(np.linalg.norm(answer - centre)) for answer in honest)
    assert np.linalg.norm(merged(name, answers, **BEARS_THREE[name]) - centre) <= spread
    assert np.linalg.norm(merged("mean", answers) - centre) > 10 * spread or attack == "opposed"


@pytest.mark.parametrize("name", ROBUST)
def test_a_flawless_gradient_carries_no_spoilt_buffer(name: str) -> None:
    answers = normal(5, 11)
    centre = exact(answers).mean(axis=0)
    answers[3] = np.concatenate([centre[:-4], np.full(4, 2.0**40)]).astype(np.float32)
    honest = exact([answer for index, answer in enumerate(answers) if index != 3])[:, -4:]
    found = merged(name, answers, buffers=4)[-4:]
    assert (found <= honest.max(axis=0)).all()
    assert (found >= honest.min(axis=0)).all()


@pytest.mark.parametrize("name", ROBUST)
def test_a_model_without_gradients_or_with_zeros_merges(name: str) -> None:
    zeros = [np.zeros(SIZE, np.float32)] * 11
    assert merged(name, zeros).tobytes() == zeros[0].tobytes()
    answers = normal(0, 11)
    found = merged(name, answers, buffers=SIZE)
    assert (found >= exact(answers).min(axis=0)).all()
    assert (found <= exact(answers).max(axis=0)).all()


@pytest.mark.parametrize(
    ("name", "settings", "least"),
    [
        ("trimmed_mean", {"trim": 3}, 7),
        ("median", {"hostile": 2}, 5),
        ("krum", {"hostile": 2}, 7),
        ("krum", {"hostile": 2, "chosen": 9}, 13),
        ("geometric_median", {"hostile": 2}, 5),
        ("centered_clip", {"hostile": 2}, 20),
    ],
)
def test_the_guarantees_need_so_many_answers(name: str, settings: dict[str, int], least: int) -> None:
    chosen = load_aggregator(name).Settings(**settings)
    chosen.check(least, least)
    with pytest.raises(Refused, match=f"takes {least} to 1024 answers, and a round has {least - 1} to {least}"):
        chosen.check(least - 1, least)


@pytest.mark.parametrize("name", ROBUST)
def test_memory_is_shards_however_long_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_columns, "HELD", 2**18)
    rule, size = load_aggregator(name), 2**16
    shards = [Shard(normal(seed, 11, size), addends=16) for seed in range(4)] * 4
    tracemalloc.start()
    for shard in rule.aggregate(shards, rule.Settings()):
        assert math.isfinite(float(shard[0]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**18 + 4 * 4 * size + 8 * (gram.BLOCK + sorting.BLOCK)
