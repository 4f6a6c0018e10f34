"""A holder's worker counts a job's uses of its rows, and stops at the job's epsilon for any market."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmarket.compute.executor import Executor
from gradmarket.compute.machine import MachineLimits
from gradmarket.data.pack import Cut, pack_dataset, write_dataset
from gradmarket.market.errors import Refused
from gradmarket.market.features.private.holder_budget import compute_epsilon
from gradmarket.market.features.private.row_budget import compute_row_rate, count_affordable_uses
from gradmarket.market.features.private.sampled_privacy import SampledSteps, compute_sampled_epsilon
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Manifest
from gradmarket.market.terms import Digest, Hash, blob_digest
from gradmarket.runner import Runner
from graphdoc.encoding import canonical
from tests.lanes import FULL, leave_to_full
from tests.worker.conftest import SPEC, MakeExecutor, offer, some_rows
from worker.features.private.holder_files import RowUsesFolder
from worker.features.private.own_rows import OwnRows
from worker.features.private.row_uses import CountedRows, RowBudget, RowUses

INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "classes": 3}}
PER_ROW = {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 2.0, "delta": 1e-5}
LIMITS = MachineLimits(max_flops=1e12, max_memory=2**31)
USES = 4
"""How often PER_ROW allows each row to be used."""


def spec(**changes: Any) -> JobSpec:
    data = {"inputs": INPUTS, "holders": ["0x" + "11" * 20], "least_rows": 16}
    step = {"kind": "gradient", "rows": 8, "per_row": PER_ROW} | changes.pop("step", {})
    alone = {"replication": {"replicas": 1, "max_replicas": 1}}
    return JobSpec.model_validate(SPEC | alone | {"data": data, "step": step, "norm_bound": 10.0} | changes)


def packed(folder: Path, store: Path, rows: int = 32, partition: int = 10**6) -> OwnRows:
    write_dataset(pack_dataset(some_rows(rows, 4, 3), Cut(rows=partition)), folder)
    return OwnRows.opened(folder, RowUsesFolder(store))


@pytest.fixture
def counted(blobs: dict[Digest, bytes]) -> Publication:
    document, parameters, *_ = blobs
    made = spec()
    assert made.private is not None
    assert made.step.per_row is not None
    assert count_affordable_uses(made.step.per_row) == USES
    manifest = canonical(Manifest(inputs=made.private.inputs, partitions=()).model_dump(mode="json"))
    blobs[blob_digest(manifest)] = manifest
    return Publication(
        job="0123456789abcdef", spec=made, document=document, evaluation=None, parameters=parameters,
        manifest=blob_digest(manifest),
    )  # fmt: skip


def taken(rows: CountedRows, publication: Publication, tasks: int) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the rows that `tasks` tasks take, step by step."""
    steps = [step for _ in range(tasks) for step in rows.take(publication)]
    return [(partition.name, tuple(numbers)) for step in steps for partition, numbers in step.pieces]


@FULL
@pytest.mark.parametrize("partition", [10**6, 10])
def test_no_row_is_taken_again_before_an_epoch_is_over(tmp_path: Path, counted: Publication, partition: int) -> None:
    """Of 32 rows 8 a step; with partitions of 10 the rest of each is left out."""
    rows = packed(tmp_path / "rows", tmp_path / "uses", partition=partition).counted
    epoch = rows.slots(8)
    steps = taken(rows, counted, USES * epoch)
    every = [(name, row) for name, numbers in steps for row in numbers]
    assert max(map(every.count, every)) == USES
    for number in range(USES):
        once = [(name, row) for name, numbers in steps[number * epoch :][:epoch] for row in numbers]
        assert len(set(once)) == len(once) == 8 * epoch
    with pytest.raises(Refused, match=r"epsilon 1\.\d+ of 2 is spent of a row here"):
        rows.take(counted)


def test_a_worker_adds_up_the_epsilon_of_all_jobs_on_its_rows(tmp_path: Path, counted: Publication) -> None:
    """By the dataset's digest: another job on the same rows adds to the epsilon of the first."""
    packed(tmp_path / "rows", tmp_path / "uses")
    once, both = (compute_epsilon(PER_ROW["noise_multiplier"], 1e-5, uses) for uses in (1, 2))
    owned = OwnRows.opened(
        tmp_path / "rows", RowUsesFolder(tmp_path / "uses"), budget=RowBudget((once + both) / 2, 1e-5)
    ).counted
    taken(owned, counted, owned.slots(8))
    second = counted.model_copy(update={"job": "fedcba9876543210"})
    with pytest.raises(Refused, match=r"of this worker's own .* is spent of a row by 2 jobs of this worker's folder"):
        owned.take(second)
    assert RowUsesFolder(tmp_path / "uses").load(second.job) is None
    packed(tmp_path / "again", tmp_path / "uses", rows=40)
    again = OwnRows.opened(tmp_path / "again", RowUsesFolder(tmp_path / "uses"), budget=owned.budget).counted
    with pytest.raises(Refused, match="of this worker's own"):  # packed again with other rows beside them
        again.take(second)
    assert OwnRows.opened(tmp_path / "again", RowUsesFolder(tmp_path / "new"), budget=owned.budget).counted.take(second)


def test_row_uses_of_an_older_release_stop_no_job_without_a_budget(tmp_path: Path, counted: Publication) -> None:
    """Its files have no noise multiplier; under a budget they count as without limit."""
    store = RowUsesFolder(tmp_path / "uses")
    rows = packed(tmp_path / "rows", tmp_path / "uses").counted
    rows.take(counted)
    file = next((tmp_path / "uses").glob("*.json"))
    kept = {name: value for name, value in json.loads(file.read_text()).items() if name != "noise_multiplier"}
    file.write_text(json.dumps(kept))
    other = counted.model_copy(update={"job": "fedcba9876543210"})
    assert rows.take(other)
    assert rows.take(counted)
    bound = OwnRows.opened(tmp_path / "rows", store, budget=RowBudget(1e4, 1e-5)).counted
    with pytest.raises(Refused, match="epsilon inf of this worker's own"):
        bound.take(other)


def test_jobs_of_unlike_noise_add_up_as_one_mechanism() -> None:
    """Two jobs of one use each at noise z are one use at z / sqrt(2)."""
    uses = [
        RowUses(Digest("blake3:" + "1" * 64), Digest("blake3:" + "2" * 64), 1, Hash(bytes(32)), z, 1)
        for z in (3.0, 4.0)
    ]
    assert RowBudget(delta=1e-6).spent(uses) == pytest.approx(
        compute_epsilon((1 / 9 + 1 / 16) ** -0.5, 1e-6, 1), rel=1e-6
    )


def test_a_restarted_worker_goes_on_counting(tmp_path: Path, counted: Publication) -> None:
    for number in range(4 * USES):
        rows = OwnRows.opened(tmp_path / "rows", RowUsesFolder(tmp_path / "uses")).counted if number else None
        taken(rows or packed(tmp_path / "rows", tmp_path / "uses").counted, counted, 1)
    again = OwnRows.opened(tmp_path / "rows", RowUsesFolder(tmp_path / "uses")).counted
    with pytest.raises(Refused, match="is spent of a row here"):
        again.take(counted)


def test_rows_that_are_packed_again_are_not_counted_anew(tmp_path: Path, counted: Publication) -> None:
    taken(packed(tmp_path / "rows", tmp_path / "uses").counted, counted, 4 * (USES - 1))
    rows = packed(tmp_path / "others", tmp_path / "uses", rows=40).counted
    taken(rows, counted, 5)
    with pytest.raises(Refused, match="is spent of a row here"):
        rows.take(counted)


def test_a_market_that_shows_another_publication_gets_nothing(tmp_path: Path, counted: Publication) -> None:
    """Of the same job with more epsilon, once an answer was sent under the first."""
    rows = packed(tmp_path / "rows", tmp_path / "uses").counted
    taken(rows, counted, 1)
    laxer = counted.model_copy(update={"spec": spec(step={"per_row": PER_ROW | {"epsilon": 100.0}})})
    with pytest.raises(Refused, match="another publication of job"):
        rows.take(laxer)


def test_a_count_that_cannot_be_read_stops_the_job_here(tmp_path: Path, counted: Publication) -> None:
    rows = packed(tmp_path / "rows", tmp_path / "uses").counted
    taken(rows, counted, 1)
    (file,) = (tmp_path / "uses").glob("*.json")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(Refused, match="cannot be read"):
        rows.take(counted)


def test_the_count_is_kept_before_the_rows_are_used(tmp_path: Path, counted: Publication) -> None:
    rows = packed(tmp_path / "rows", tmp_path / "uses").counted
    rows.peek(counted)
    assert not (tmp_path / "uses").exists()

    class Full(RowUsesFolder):
        def store_uses(self, job: str, uses: object) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        replace(rows, store=Full(tmp_path / "uses")).take(counted)


def test_a_dataset_in_pieces_too_small_for_the_job_is_refused(tmp_path: Path, runner: Runner) -> None:
    """36 rows in three partitions of 12 are three steps of 8, and the job counts on four."""
    own = packed(tmp_path / "rows", tmp_path / "uses", rows=36, partition=12)
    with pytest.raises(Refused, match="room for 3 steps, and the job counts on 4"):
        own.check(spec(data={"inputs": INPUTS, "holders": ["0x" + "11" * 20], "least_rows": 36}), runner)


def test_the_same_offer_gets_other_noise_each_time_and_then_nothing(
    tmp_path: Path, make_executor: MakeExecutor, counted: Publication
) -> None:
    """A cheating market asks for one round again and again, to average the noise away, or to compare two answers."""
    own = packed(tmp_path / "rows", tmp_path / "uses", rows=8 * 2)
    bench: Executor = make_executor(LIMITS, None, None, own)
    asked, answers = offer(counted), []
    bench.effort(counted)
    for _ in range(2 * USES):
        payload, _ = bench.work(counted, asked)
        answers.append(blob_digest(payload))
    assert len(set(answers)) == len(answers)
    with pytest.raises(Refused, match="is spent of a row here"):
        bench.work(counted, asked)
    with pytest.raises(Refused, match="is spent of a row here"):
        bench.check_task_fits(counted)


def test_an_answer_of_a_private_job_has_no_loss_and_a_noised_gradient(
    tmp_path: Path, make_executor: MakeExecutor, counted: Publication
) -> None:
    own = packed(tmp_path / "rows", tmp_path / "uses")
    bench: Executor = make_executor(LIMITS, None, None, own)
    asked = offer(counted)
    payload, _ = bench.work(counted, asked)
    tensors = bench.gradient(counted, asked, payload)
    told = np.concatenate([tensor.reshape(-1) for tensor in tensors.values()])
    assert np.std(told) == pytest.approx(4.0 / 8, rel=0.3), "it is noise, nearly all of it"
    assert np.frombuffer(bytes(payload[:4]), "<f4")[0] == 0.0


BY_CHANCE = {"per_row": PER_ROW | {"sampling": "poisson"}}


@pytest.fixture
def drawn(counted: Publication) -> Publication:
    """The same job, whose holders draw their rows by chance."""
    return counted.model_copy(update={"spec": spec(step=BY_CHANCE)})


def allowed(publication: Publication, held: int) -> int:
    asked = publication.spec.step.per_row
    assert asked is not None
    return count_affordable_uses(asked, compute_row_rate(asked, 8, held))


@pytest.mark.parametrize("partition", leave_to_full([10**6, 10]))
def test_rows_are_drawn_by_chance_from_all_partitions_and_each_step_counts(
    tmp_path: Path, drawn: Publication, partition: int
) -> None:
    """8 of 64 rows in the mean; a step's batch has room for 20, whatever it drew."""
    rows = packed(tmp_path / "rows", tmp_path / "uses", rows=64, partition=partition).counted
    steps = [step for _ in range(allowed(drawn, 64)) for step in rows.take(drawn)]
    assert len(steps) > 4 * USES, "sixteen epochs' uses are fewer than the draws that tell as much"
    assert {sum(len(numbers) for _, numbers in step.pieces) for step in steps} == {20}
    counts = [step.drawn for step in steps]
    assert np.mean(counts) == pytest.approx(8, abs=5 * np.sqrt(7 / len(counts)))
    assert len(set(counts)) > 3
    flat = [[(part.name, row) for part, numbers in step.pieces for row in numbers][: step.drawn] for step in steps]
    assert all(len(set(taken)) == len(taken) for taken in flat)
    assert len({row for taken in flat for row in taken}) == 64
    with pytest.raises(Refused, match="of 2 is spent of a row here"):
        rows.take(drawn)
    again = OwnRows.opened(tmp_path / "rows", RowUsesFolder(tmp_path / "uses")).counted
    with pytest.raises(Refused, match="of 2 is spent of a row here"):
        again.take(drawn)


def test_a_service_that_names_the_seed_has_no_part_in_the_draw(
    tmp_path: Path, make_executor: MakeExecutor, drawn: Publication
) -> None:
    """One offer, with one seed, to one worker and its twin: draws do not follow from the service's messages. A known
    draw discloses far more of a row than is counted (tests/market/test_sampled_privacy.py)."""
    twins = [packed(tmp_path / "rows", tmp_path / name, rows=64) for name in ("uses", "twin")]
    draws = [
        tuple(row for _, numbers in step.pieces for row in numbers[: step.drawn])
        for own in twins
        for _ in range(8)
        for step in own.counted.take(drawn)
    ]
    assert len(set(draws)) == 16
    bench, asked = make_executor(LIMITS, None, None, twins[0]), offer(drawn)
    answers = [bench.work(drawn, asked)[0] for _ in range(2)]
    assert answers[0] != answers[1]
    assert {len(answer) for answer in answers} == {len(answers[0])}
    told = [np.concatenate([t.reshape(-1) for t in bench.gradient(drawn, asked, one).values()]) for one in answers]
    assert np.std(told[0]) == pytest.approx(4.0 / 8, rel=0.3), "divided by the rows in the mean, and not by those drawn"


def test_rows_packed_anew_go_on_at_the_greater_probability(tmp_path: Path, drawn: Publication) -> None:
    """Of 64 rows and then of 16, which may be among them: every step so far counts as one at a half."""
    packed(tmp_path / "rows", tmp_path / "uses", rows=64).counted.take(drawn)
    few = packed(tmp_path / "few", tmp_path / "uses", rows=16).counted
    for _ in range(allowed(drawn, 16) - 1):
        few.take(drawn)
    with pytest.raises(Refused, match="is spent of a row here"):
        few.take(drawn)


@FULL
def test_the_workers_own_budget_adds_up_draws_and_epochs(
    tmp_path: Path, counted: Publication, drawn: Publication
) -> None:
    packed(tmp_path / "rows", tmp_path / "uses", rows=64)
    one = compute_epsilon(PER_ROW["noise_multiplier"], 1e-5, 1)
    owned = OwnRows.opened(
        tmp_path / "rows", RowUsesFolder(tmp_path / "uses"), budget=RowBudget(1.2 * one, 1e-5)
    ).counted
    owned.take(counted)
    other, steps = drawn.model_copy(update={"job": "fedcba9876543210"}), 0
    with suppress(Refused):
        for steps in range(1000):  # noqa: B007
            owned.take(other)
    with pytest.raises(Refused, match=r"of this worker's own .* is spent of a row by 2 jobs"):
        owned.take(other)
    parts = [SampledSteps(4.0, 1.0, 1), SampledSteps(4.0, 1 / 8, steps)]
    assert compute_sampled_epsilon(tuple(parts), 1e-5) <= 1.2 * one
    assert compute_sampled_epsilon((parts[0], parts[1]._replace(steps=steps + 1)), 1e-5) > 1.2 * one


def test_a_dataset_in_small_pieces_can_be_drawn_from(tmp_path: Path, runner: Runner) -> None:
    own = packed(tmp_path / "rows", tmp_path / "uses", rows=36, partition=5)
    data = {"inputs": INPUTS, "holders": ["0x" + "11" * 20], "least_rows": 36}
    own.check(spec(data=data, step=BY_CHANCE), runner)
