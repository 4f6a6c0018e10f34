"""The books of coverage agree with the rows."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.coverage import compute_partition_uses, count_full_epochs, worst_share
from gradmarket.market.sampling import epoch_rows

ROWS = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@given(rows=ROWS, count=st.integers(1, 10), merged=st.integers(0, 60))
def test_epochs_are_how_often_every_row_was_used(rows: list[int], count: int, merged: int) -> None:
    count = min(count, *rows)
    used: list[Counter[int]] = [Counter() for _ in rows]
    for place in range(merged):
        index = place % len(rows)
        used[index].update(epoch_rows(bytes([index]), place // len(rows), rows[index], count))
    least = min(used[index][row] for index, total in enumerate(rows) for row in range(total))
    assert count_full_epochs(rows, merged, count) == least
    taken = Counter(place % len(rows) for place in range(merged))
    for index, mean in enumerate(compute_partition_uses(rows, taken, count)):
        assert abs(mean - used[index].total() / rows[index]) < 1e-9


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_the_worst_share_is_between_none_and_the_mean(shares: list[float]) -> None:
    assert 0.0 <= worst_share(shares) <= 1.0 + 1e-9


def test_the_worst_share_of_some() -> None:
    assert worst_share([2.0, 2.0]) == 1.0
    assert worst_share([0.0, 2.0]) == 0.0
    assert worst_share([1.0, 3.0]) == 0.5
    assert worst_share([]) == 0.0
