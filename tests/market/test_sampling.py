"""Which rows: different ones, all of them in turn, each as likely, and the same for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import Refused
from gradmarket.market.model.sampling import other_rows, rows

SEED = bytes(range(32))


@given(total=st.integers(1, 500), share=st.floats(0.01, 1), number=st.integers(0, 10**6), task=st.integers(0, 10**4))
def test_rows_are_different_and_in_range(total: int, share: float, number: int, task: int) -> None:
    count = max(1, int(total * share))
    chosen = rows(SEED, number, task, total, count)
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(range(total))
    assert chosen == rows(SEED, number, task, total, count)


@given(total=st.integers(1, 300), count=st.integers(1, 50), number=st.integers(0, 50))
def test_a_round_takes_every_row_once_before_one_twice(total: int, count: int, number: int) -> None:
    count = min(count, total)
    tasks = total // count
    taken = [row for task in range(tasks) for row in rows(SEED, number, task, total, count)]
    assert len(set(taken)) == len(taken) == tasks * count
    following = rows(SEED, number, tasks, total, count)
    assert len(set(taken) | set(following)) == total or tasks * count + count <= total


def test_rounds_seeds_and_sizes_are_shuffled_anew() -> None:
    draws = [rows(SEED, 0, 0, 1000, 10), rows(SEED, 1, 0, 1000, 10), rows(bytes(32), 0, 0, 1000, 10)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert rows(SEED, 0, 0, 1001, 10) != draws[0]


def test_every_row_is_as_likely_in_every_place() -> None:
    counts = [[0] * 5 for _ in range(5)]
    for number in range(4000):
        for place, row in enumerate(rows(SEED, number, 0, 5, 5)):
            counts[place][row] += 1
    chi_squared = sum((count - 800) ** 2 / 800 for line in counts for count in line)
    assert chi_squared < 60


def test_pinned_vectors() -> None:
    assert rows(SEED, 0, 0, 10, 10) == [8, 9, 7, 1, 4, 6, 5, 2, 3, 0]
    assert rows(SEED, 3, 1, 1437, 5) == [678, 340, 116, 368, 17]
    assert rows(b"", 2**40, 7, 2**16, 3) == [57806, 44847, 9629]


@pytest.mark.parametrize(("total", "count"), [(5, 6), (5, 0), (0, 0), (0, 1), (5, -1)])
def test_more_rows_than_there_are_is_refused(total: int, count: int) -> None:
    with pytest.raises(Refused):
        rows(SEED, 0, 0, total, count)


@given(count=st.integers(1, 20), draws=st.integers(1, 4), more=st.integers(0, 30), number=st.integers(0, 50))
def test_other_rows_are_other_rows(count: int, draws: int, more: int, number: int) -> None:
    total = (draws + 1) * count + more
    own = rows(SEED, number, 0, total, count)
    found = other_rows(own, total, draws, bytes([number]) * 32)
    everything = [*own, *(row for draw in found for row in draw)]
    assert [len(draw) for draw in found] == [count] * draws
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(range(total))
    assert found == other_rows(own, total, draws, bytes([number]) * 32)


def test_other_rows_are_drawn_by_the_seed_and_refused_where_there_are_too_few() -> None:
    own = rows(SEED, 0, 0, 100, 10)
    assert other_rows(own, 100, 3, bytes(32)) != other_rows(own, 100, 3, bytes([1]) * 32)
    with pytest.raises(Refused, match="3 draws of 10 rows beside the own ones, of a partition that has 39"):
        other_rows(range(10), 39, 3, bytes(32))
