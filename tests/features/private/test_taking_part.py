"""A holder's worker's line about the rows with which it takes part."""

import pytest

from worker.features.private import in_words


@pytest.mark.parametrize(
    ("rows", "stands", "said"),
    [
        (80, 80, "80 rows"),
        (None, None, "rows without a number"),
        (80, 100, "80 rows, weighed by its first number, 100 rows,"),
        (80, None, "80 rows, weighed by its first number, rows without a number,"),
    ],
)
def test_a_worker_prints_the_weight_of_its_answers(rows: int | None, stands: int | None, said: str) -> None:
    assert in_words(rows, stands) == said
