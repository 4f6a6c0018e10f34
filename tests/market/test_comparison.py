"""Comparing jobs: fields that differ, and the best checkpoint."""

import math

import pytest
from pydantic import ValidationError

from gradmarket.market.admissible import list_differences
from gradmarket.market.job import JobSpec
from requester.features.evaluations import find_best_round
from requester.features.labels import Labels

JOB = {
    "name": "n",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 1},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 3,
    "price": "1",
}


def test_the_fields_in_which_jobs_differ_have_paths_and_values() -> None:
    first = JobSpec.model_validate(JOB).model_dump(mode="json")
    other = JobSpec.model_validate(JOB | {"optimizer": {"name": "adamw", "lr": 0.1, "clip": 2.0}, "min_tasks": 1})
    second = other.model_dump(mode="json")
    assert list_differences([first, second, first]) == {
        "optimizer.name": ["sgd", "adamw", "sgd"],
        "optimizer.clip": [None, 2.0, None],
        "min_tasks": [None, 1, None],
    }
    assert list_differences([first, first]) == {}


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("accuracy", [0.5, 0.9, 0.9, 0.7], 1),
        ("loss", [0.5, 0.9, 0.2, 0.2], 2),
        ("accuracy", [math.nan, 0.1, math.nan], 1),
        ("accuracy", [math.nan], None),
        ("accuracy", [], None),
    ],
)
def test_the_best_checkpoint_is_the_earliest_with_the_best_value(
    metric: str, values: list[float], best: int | None
) -> None:
    """A diverged model is never the best."""
    rounds = [(number, {metric: value}) for number, value in enumerate(values)]
    assert find_best_round(metric, [*reversed(rounds), (99, {"other": 1e9})]) == best


def test_labels_are_words_in_order_and_each_once() -> None:
    assert Labels(tags=("b", "a", "b")).tags == ("a", "b")
    for wrong in ("", "two words", "a|b", "-a", "x" * 41):
        with pytest.raises(ValidationError):
            Labels(tags=(wrong,))
    with pytest.raises(ValidationError):
        Labels(note="x" * 2001)


def test_labels_and_a_continued_job_are_left_out_where_there_are_none() -> None:
    """So that publications older than these fields keep their digests."""
    plain = JobSpec.model_validate(JOB).model_dump(mode="json")
    assert not plain.keys() & {"tags", "note", "continue_from"}
