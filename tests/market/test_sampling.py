"""Which rows: different ones, all of them in turn, each as likely, and the same for ever."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Manifest
from gradmarket.market.sampling import draw_shuffled_rows, epoch_rows, other_rows, task_rows

SEED = bytes(range(32))


@given(total=st.integers(1, 500), share=st.floats(0.01, 1), number=st.integers(0, 10**6), task=st.integers(0, 10**4))
def test_rows_are_different_and_in_range(total: int, share: float, number: int, task: int) -> None:
    count = max(1, int(total * share))
    chosen = draw_shuffled_rows(SEED, number, task, total, count)
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(range(total))
    assert chosen == draw_shuffled_rows(SEED, number, task, total, count)


@given(total=st.integers(1, 300), count=st.integers(1, 50), number=st.integers(0, 50))
def test_a_round_takes_every_row_once_before_one_twice(total: int, count: int, number: int) -> None:
    count = min(count, total)
    tasks = total // count
    taken = [row for task in range(tasks) for row in draw_shuffled_rows(SEED, number, task, total, count)]
    assert len(set(taken)) == len(taken) == tasks * count
    following = draw_shuffled_rows(SEED, number, tasks, total, count)
    assert len(set(taken) | set(following)) == total or tasks * count + count <= total


def test_rounds_seeds_and_sizes_are_shuffled_anew() -> None:
    draws = [
        draw_shuffled_rows(SEED, 0, 0, 1000, 10),
        draw_shuffled_rows(SEED, 1, 0, 1000, 10),
        draw_shuffled_rows(bytes(32), 0, 0, 1000, 10),
    ]
    assert len({tuple(draw) for draw in draws}) == 3
    assert draw_shuffled_rows(SEED, 0, 0, 1001, 10) != draws[0]


def test_every_row_is_as_likely_in_every_place() -> None:
    counts = [[0] * 5 for _ in range(5)]
    for number in range(4000):
        for place, row in enumerate(draw_shuffled_rows(SEED, number, 0, 5, 5)):
            counts[place][row] += 1
    chi_squared = sum((count - 800) ** 2 / 800 for line in counts for count in line)
    assert chi_squared < 60


def test_pinned_vectors() -> None:
    assert draw_shuffled_rows(SEED, 0, 0, 10, 10) == [8, 9, 7, 1, 4, 6, 5, 2, 3, 0]
    assert draw_shuffled_rows(SEED, 3, 1, 1437, 5) == [678, 340, 116, 368, 17]
    assert draw_shuffled_rows(b"", 2**40, 7, 2**16, 3) == [57806, 44847, 9629]


@pytest.mark.parametrize(("total", "count"), [(5, 6), (5, 0), (0, 0), (0, 1), (5, -1)])
def test_more_rows_than_there_are_is_refused(total: int, count: int) -> None:
    with pytest.raises(Refused):
        draw_shuffled_rows(SEED, 0, 0, total, count)


@given(count=st.integers(1, 20), draws=st.integers(1, 4), more=st.integers(0, 30), number=st.integers(0, 50))
def test_other_rows_are_other_rows(count: int, draws: int, more: int, number: int) -> None:
    total = (draws + 1) * count + more
    own = draw_shuffled_rows(SEED, number, 0, total, count)
    found = other_rows(own, total, draws, bytes([number]) * 32)
    everything = [*own, *(row for draw in found for row in draw)]
    assert [len(draw) for draw in found] == [count] * draws
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(range(total))
    assert found == other_rows(own, total, draws, bytes([number]) * 32)


def test_other_rows_are_drawn_by_the_seed_and_refused_where_there_are_too_few() -> None:
    own = draw_shuffled_rows(SEED, 0, 0, 100, 10)
    assert other_rows(own, 100, 3, bytes(32)) != other_rows(own, 100, 3, bytes([1]) * 32)
    with pytest.raises(Refused, match="3 draws of 10 rows beside the own ones, of a partition that has 39"):
        other_rows(range(10), 39, 3, bytes(32))


@given(
    total=st.integers(1, 60),
    count=st.integers(1, 20),
    moves=st.integers(1, 5),
    groups=st.integers(1, 60),
    seed=st.binary(),
)
def test_an_epoch_takes_every_row_once(total: int, count: int, moves: int, groups: int, seed: bytes) -> None:
    count = min(count, total)
    taken = Counter(row for group in range(groups) for row in epoch_rows(seed, group, total, count, moves))
    uses = [taken[row] for row in range(total)]
    assert sum(uses) == groups * count * moves
    assert max(uses) - min(uses) <= 1
    assert min(uses) == groups * count * moves // total


@given(group=st.integers(0, 10**9), total=st.integers(1, 60))
def test_a_group_is_the_same_for_ever_and_of_the_rows_that_there_are(group: int, total: int) -> None:
    chosen = epoch_rows(SEED, group, total, total)
    assert sorted(chosen) == list(range(total))
    assert chosen == epoch_rows(SEED, group, total, total)


def test_epochs_and_seeds_are_shuffled_anew() -> None:
    draws = [epoch_rows(SEED, 0, 100, 100), epoch_rows(SEED, 1, 100, 100), epoch_rows(b"other", 0, 100, 100)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert epoch_rows(SEED, 1, 10, 6)[:4] == epoch_rows(SEED, 0, 10, 10)[6:]


@pytest.mark.parametrize(("total", "count"), [(5, 6), (5, 0), (0, 0), (0, 1), (5, -1)])
def test_more_rows_than_an_epoch_has_are_refused(total: int, count: int) -> None:
    with pytest.raises(Refused):
        epoch_rows(SEED, 0, total, count)


PLAN: dict[str, Any] = {
    "name": "n",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 4},
    "optimizer": {"lr": 0.1},
    "rounds": 5,
    "price": "1",
    "tasks_per_round": 3,
    "min_tasks": 2,
}


def _manifest(*rows: int) -> Manifest:
    digest = "blake3:" + "0" * 64
    parts = [{"name": f"p{n}", "link": "x", "digest": digest, "bytes": 1, "rows": size} for n, size in enumerate(rows)]
    return Manifest.model_validate({"inputs": {"x": {"dtype": "float32"}}, "partitions": parts})


def test_a_task_keeps_its_rows_in_a_later_round_where_rows_are_taken_by_epochs() -> None:
    spec, manifest = JobSpec.model_validate(PLAN | {"sampling": "epochs"}), _manifest(12, 12)
    assert task_rows(manifest, spec, 0, 2) == task_rows(manifest, spec, 1, 2)
    assert task_rows(manifest, spec, 0, 2) != task_rows(manifest, spec, 0, 3)
    taken = Counter((place % 2, row) for place in range(6) for row in task_rows(manifest, spec, place // 3, place))
    assert len(taken) == 24
    assert set(taken.values()) == {1}


def test_jobs_that_name_no_sampling_keep_their_rows_and_their_digest() -> None:
    spec, manifest = JobSpec.model_validate(PLAN), _manifest(12, 9)
    assert "sampling" not in spec.model_dump(mode="json")
    for number in range(3):
        for task in range(3):
            total = (12, 9)[(number * 3 + task) % 2]
            assert task_rows(manifest, spec, number, task) == draw_shuffled_rows(bytes(8), number, task, total, 4)


@pytest.mark.parametrize(
    ("round_number", "task", "has"),
    [(0, 2, True), (0, 3, False), (1, 5, True), (4, 0, True), (5, 0, False), (1, -1, False)],
)
def test_a_round_has_tasks_up_to_its_own(round_number: int, task: int, has: bool) -> None:
    assert JobSpec.model_validate(PLAN | {"sampling": "epochs"}).has_task(round_number, task) is has
    assert JobSpec.model_validate(PLAN).has_task(round_number, task) is (has and task < 3)


def test_a_late_answer_is_merged_only_where_rounds_leave_tasks() -> None:
    assert JobSpec.model_validate(PLAN | {"sampling": "epochs", "staleness": 1}).staleness == 1
    for changes in (
        {"sampling": "rounds"},
        {"sampling": "epochs", "min_tasks": 3},
        {"sampling": "epochs", "min_tasks": None},
    ):
        with pytest.raises(ValidationError, match="staleness"):
            JobSpec.model_validate(PLAN | {"staleness": 1} | changes)
