"""Rounds that grow: their tasks, their rows, and their cost."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.job import JobSpec

SPEC: dict[str, Any] = {
    "name": "growing",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 4},
    "optimizer": {"name": "lars", "lr": 1.0},
    "rounds": 20,
    "tasks_per_round": 2,
    "price": "7",
    "replication": {"name": "fixed"},
}


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate(SPEC | fields)


@st.composite
def growing(draw: st.DrawFn) -> JobSpec:
    count = draw(st.integers(0, 4))
    rounds = sorted(draw(st.sets(st.integers(1, 19), min_size=count, max_size=count)))
    tasks = sorted(draw(st.sets(st.integers(3, 99), min_size=count, max_size=count)))
    growth = [{"round": number, "tasks": many} for number, many in zip(rounds, tasks, strict=True)]
    return spec(growth=growth, sampling=draw(st.sampled_from(["rounds", "epochs"])))


@given(growing())
def test_every_place_of_the_rows_is_that_of_one_task(job: JobSpec) -> None:
    """Whatever the rounds' sizes are, no rows are left out and none are taken twice."""
    places = [job.place(number, task) for number in range(job.rounds) for task in job.tasks_of(number)]
    assert places == list(range(job.sizes.all))
    assert all(job.has_task(number, task) for number in range(job.rounds) for task in job.tasks_of(number))
    assert not any(job.has_task(number, job.tasks_of(number).stop) for number in range(job.rounds))


@given(growing())
def test_rounds_never_shrink_and_their_sizes_add_up(job: JobSpec) -> None:
    sizes = [job.sizes.of(number) for number in range(job.rounds)]
    assert all(before <= after for before, after in pairwise(sizes))
    assert [job.sizes.before(number) for number in range(job.rounds + 1)] == [
        sum(sizes[:number]) for number in range(job.rounds + 1)
    ]
    assert (job.sizes.all, job.sizes.most) == (sum(sizes), max(sizes))
    assert [job.needed_in(number) for number in range(job.rounds)] == sizes
    assert job.tasks_needed == min(sizes)


@given(growing())
def test_the_deposit_covers_every_task_of_every_round(job: JobSpec) -> None:
    tasks = sum(job.sizes.of(number) for number in range(job.rounds))
    assert job.deposit == job.most_expensive == tasks * 5 * 7
    assert job.all_needed == tasks


def test_by_hand() -> None:
    job = spec(growth=[{"round": 5, "tasks": 4}, {"round": 10, "tasks": 16}])
    assert [job.sizes.of(number) for number in (0, 4, 5, 9, 10, 19)] == [2, 2, 4, 4, 16, 16]
    assert job.sizes.all == 5 * 2 + 5 * 4 + 10 * 16
    assert job.place(10, 3) == 5 * 2 + 5 * 4 + 3


def test_a_job_that_does_not_grow_is_published_as_it_was() -> None:
    assert "growth" not in spec().model_dump(mode="json")
    assert spec(growth=[]) == spec()


def test_a_round_that_grows_does_for_the_noise_what_a_rate_that_falls_does() -> None:
    """Smith et al. 2018, section 2: the scale of the noise is about rate * rows of the data / rows of a batch."""
    falls = [compute_learning_rate("constant", 1.0, number, 20) / 2 ** (number // 5) / 2 for number in range(20)]
    job = spec(growth=[{"round": 5 * power, "tasks": 2 * 2**power} for power in (1, 2, 3)])
    grows = [compute_learning_rate("constant", 1.0, number, 20) / job.sizes.of(number) for number in range(20)]
    assert grows == falls


REFUSED = [
    ([{"round": 5, "tasks": 2}], {}, "name more"),
    ([{"round": 5, "tasks": 4}, {"round": 9, "tasks": 3}], {}, "name more"),
    ([{"round": 5, "tasks": 4}, {"round": 5, "tasks": 8}], {}, "ascending"),
    ([{"round": 20, "tasks": 4}], {}, "earlier"),
    ([{"round": 0, "tasks": 4}], {}, "greater than or equal to 1"),
    ([{"round": 1, "tasks": 10_001}], {}, "less than or equal to 10000"),
    ([{"round": 5, "tasks": 4}], {"min_tasks": 1, "sampling": "epochs"}, "leave out one"),
    ([{"round": 5, "tasks": 4, "rows": 1}], {}, "no such field"),
]


@pytest.mark.parametrize(("growth", "more", "said"), REFUSED, ids=str)
def test_other_growth_is_refused(growth: list[dict[str, int]], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec(growth=growth, **more)
