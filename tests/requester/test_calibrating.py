"""Thresholds from trusted runs: what auditors of two classes find of one task counts, and nothing else does."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_calibrating import (
    GPU,
    NAMES,
    TOLERANT,
    TPU,
    NewFloor,
    allowed,
    audited,
    auditor,
    known,
    pairs,
    to_calibrate,
    tolerant,
)
from market_floor import CLASS, Floor
from market_workers import HONEST, scaled

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.rules.calibration import LEAST, MARGIN, RUNS
from gradmarket.market.rules.verifiers.tolerance import pair
from gradmarket.market.terms import AuditState, CalibrationState, Hash, JobState
from gradmarket.requester.api.calibration import calibration as told
from gradmarket.requester.stages import auditors, calibrating
from gradmarket.requester.stages.auditors import Claimed
from gradmarket.requester.store.tables import TrustedRun


def test_what_two_classes_find_of_one_task_becomes_a_threshold_that_anybody_sees(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor, GPU, TPU)
    known(floor, RUNS - 1)
    audited(floor)
    assert (auditor(floor).work(), auditor(floor, TPU, 3e-6).work()) == (1, 1)
    found = pairs(floor)
    assert {classes: (row.state, row.runs) for classes, row in found.items()} == {
        (CLASS, GPU): (CalibrationState.CALIBRATED, RUNS),
        (CLASS, TPU): (CalibrationState.GATHERING, 1),
        (GPU, TPU): (CalibrationState.GATHERING, 1),
    }
    (thresholds,) = allowed(floor).values()
    largest = found[CLASS, GPU].largest
    assert thresholds == {name: max(LEAST, MARGIN * largest[name]) for name in NAMES}
    assert 5e-7 < largest["w"] < 2e-6
    assert [event["classes"] for event in floor.events("calibrated")] == [[CLASS, GPU]]
    line = told(floor.context, floor.job).pairs[0]
    assert (line.classes, line.state, line.runs) == ((CLASS, GPU), CalibrationState.CALIBRATED, RUNS)
    assert line.confidence > 0.95
    assert {tensor.name: tensor.threshold for tensor in line.tensors} == thresholds
    task, roots = floor.tasks()[0], {run.determinism_class: run.root for run in floor.all(TrustedRun)}
    assert line.tasks == []  # as long as an audit may have the task done again, nobody is told its answer
    floor.cancel()
    line = told(floor.context, floor.job).pairs[0]
    assert [(row.task, row.roots) for row in line.tasks] == [(task.id, (roots[CLASS], roots[GPU]))]
    assert roots[CLASS] == task.root != roots[GPU]


@SQLITE
def test_fewer_than_59_runs_allow_nothing(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    known(floor, RUNS - 2)
    audited(floor)
    auditor(floor).work()
    assert pairs(floor)[CLASS, GPU].runs == RUNS - 1
    assert allowed(floor) == {}
    assert floor.events("calibrated") == []


@SQLITE
def test_a_task_is_to_calibrate_with_once_it_passed_one_auditor_at_a_time(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    floor.until(lambda: audits_of(floor))
    gpu = auditor(floor)
    assert gpu.claim() is None
    audited(floor)
    first = to_calibrate(floor, gpu)
    assert (first.task, first.run) == (floor.tasks()[0].id, 0)
    assert gpu.claim() is None
    assert SimAuditor(floor).claim() is None
    floor.clock.now += first.seconds + 1
    assert to_calibrate(floor, auditor(floor)).task == first.task


@SQLITE
def test_a_calibrated_pair_is_looked_at_further_where_workers_of_the_class_are_there(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    known(floor, RUNS)
    audited(floor)
    gpu = auditor(floor)
    assert gpu.claim() is None
    present = floor.worker(determinism_class=GPU)
    present.capacity = 0
    present.ask()
    assert to_calibrate(floor, gpu).task == floor.tasks()[0].id


@SQLITE
def test_a_lie_is_never_taken_for_trusted_nor_is_any_workers_sketch(new_floor: NewFloor) -> None:
    """The liars' payload was accepted, and an audit found another: neither says how far honest answers deviate."""
    floor = tolerant(new_floor)
    for worker in floor.workers[:2]:
        worker.behaviour = scaled(1.0001)
    floor.until(lambda: audits_of(floor))
    SimAuditor(floor).work()
    assert [audit.state for audit in audits_of(floor)] == [AuditState.FAILED]
    assert auditor(floor).claim() is None
    assert floor.all(TrustedRun) == []
    floor.worker(), floor.worker()
    audited(floor, 2)
    auditor(floor).work()
    assert {(run.determinism_class, run.auditor) for run in floor.all(TrustedRun)} == {
        (CLASS, "auditor"),
        (GPU, f"the {GPU}"),
    }


@SQLITE
def test_what_was_not_asked_for_is_refused(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    audited(floor)
    gpu, context = auditor(floor), floor.context
    claimed = to_calibrate(floor, gpu)
    sketch = gpu.sketched(claimed).sketch
    fewer, other = dict(list(sketch.items())[1:]), sketch | {"x": sketch["w"]}
    for changes, error, why in (
        ({"determinism_class": TPU}, NotFound, "claimed in this class"),
        ({"auditor": "another"}, Conflict, "another auditor's"),
        ({"run": 1}, Conflict, "claim one"),
        ({"sketch": fewer}, Refused, "other tensors .* loss"),
        ({"sketch": other}, Refused, "other tensors .* x"),
    ):
        with pytest.raises(error, match=why):
            calibrating.answer(context, claimed.task, gpu.sketched(claimed, **changes))
    with pytest.raises(NotFound):
        calibrating.answer(context, "no-such-task", gpu.sketched(claimed))
    assert pairs(floor) == {}


@SQLITE
def test_the_same_answer_counts_once_and_another_is_a_conflict(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    audited(floor)
    gpu = auditor(floor)
    claimed = to_calibrate(floor, gpu)
    for _ in range(3):
        assert not gpu.answer(claimed)
    assert pairs(floor)[CLASS, GPU].runs == 1
    root, noise = audits_of(floor)[0].root, auditor(floor, deviation=1e-4).sketched(claimed).sketch
    for changes in ({"root": root}, {"sketch": noise}):
        with pytest.raises(Conflict):
            calibrating.answer(floor.context, claimed.task, gpu.sketched(claimed, **changes))
    before = floor.all(TrustedRun)
    own = gpu.sketched(claimed, determinism_class=CLASS, root=root, auditor="auditor")
    with pytest.raises(Conflict):
        calibrating.answer(floor.context, claimed.task, own)
    assert [run.sketch for run in floor.all(TrustedRun)] == [run.sketch for run in before]


@SQLITE
def test_a_pair_whose_noise_hides_lies_is_refused_and_told_and_asked_for_no_more(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor, GPU, tasks_per_round=2)
    known(floor, RUNS + 1)
    assert allowed(floor)
    audited(floor, 2)
    noisy = auditor(floor, deviation=6e-4)
    claimed = to_calibrate(floor, noisy)
    assert noisy.answer(claimed)
    assert allowed(floor)
    assert not noisy.answer(claimed, again=1)
    assert allowed(floor) == {}
    (event,) = floor.events("calibration_refused")
    assert event["classes"] == [CLASS, GPU]
    assert "over 5e-03" in event["reason"]
    assert noisy.claim() is None
    assert told(floor.context, floor.job).pairs[0].reason == event["reason"]


@SQLITE
@pytest.mark.parametrize(
    "wrongly",
    [
        lambda floor, claimed: auditor(floor, deviation=0.1).answer(claimed),
        lambda floor, claimed: auditor(floor).answer(replace(claimed, wave_seed=Hash(bytes(32)))),
    ],
    ids=["another answer", "under another seed"],
)
def test_an_auditor_that_errs_once_spoils_no_pair(
    new_floor: NewFloor, wrongly: Callable[[Floor, Claimed], bool]
) -> None:
    floor = tolerant(new_floor, GPU)
    known(floor, RUNS)
    audited(floor)
    claimed = to_calibrate(floor, auditor(floor))
    assert wrongly(floor, claimed)
    assert len(floor.events("calibration_unsure")) == 1
    assert not auditor(floor).answer(claimed, again=1)
    assert pairs(floor)[CLASS, GPU].state == CalibrationState.CALIBRATED
    assert max(allowed(floor)[CLASS, GPU].values()) < 1e-4


@SQLITE
def test_a_threshold_grows_with_what_honest_machines_show_and_is_told(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor, GPU)
    known(floor, RUNS)
    before = allowed(floor)[CLASS, GPU]
    audited(floor)
    auditor(floor, deviation=1e-5).work()
    after = allowed(floor)[CLASS, GPU]
    assert after["w"] > before["w"]
    assert floor.events("calibrated") == []
    (event,) = floor.events("threshold_raised")
    assert event["threshold"] == max(after.values())


@SQLITE
def test_jobs_alike_share_what_was_found_and_others_do_not(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    known(floor, RUNS)
    for number, (spec, same) in enumerate(
        (({"seed": 8, "rounds": 7}, True), ({"uplink": {"codec": "bf16"}}, False), ({"precision": "bf16"}, False),
         ({"step": {"rows": 2}}, False))
    ):  # fmt: skip
        job = f"{number:016x}"
        floor.also(job, 8 + number, **(TOLERANT | spec))
        assert bool(allowed(floor, job)) == same


@SQLITE
def test_an_ended_job_still_calibrates_for_those_like_it_until_that_is_done(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor, tasks_per_round=2)
    known(floor, RUNS - 1)
    audited(floor, 2)
    floor.cancel()
    gpu = auditor(floor)
    assert gpu.work() == 1
    assert pairs(floor)[CLASS, GPU].state == CalibrationState.CALIBRATED


@SQLITE
def test_no_task_is_asked_for_whose_parameters_are_gone(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    sketched = {run.round: run.sketch is not None for run in floor.all(TrustedRun)}
    assert sketched == {0: False, 1: True, 2: True}
    gpu, asked = auditor(floor), set()
    while claimed := gpu.claim():
        asked.add(claimed.task)
        assert not gpu.answer(claimed)
    assert asked == {task.id for task in floor.tasks() if task.round >= 1}


@SQLITE
def test_a_round_that_is_taken_back_leaves_nothing_to_calibrate_with(new_floor: NewFloor) -> None:
    floor = tolerant(new_floor)
    for worker in floor.workers:
        worker.behaviour = scaled(3.0)
    floor.until(lambda: audits_of(floor))
    for worker in floor.workers:
        worker.behaviour = HONEST
    floor.until(lambda: len(audits_of(floor)) == 2)
    both = SimAuditor(floor)
    first, second = both.claim(), both.claim()
    assert first is not None
    assert second is not None
    assert not both.answer(second)
    floor.drive()
    assert [run.round for run in floor.all(TrustedRun)] == [1]
    assert both.answer(first)
    assert not both.answer(first, again=1)
    floor.drive()
    assert floor.events("rewound")
    assert auditor(floor).claim() is None


@SQLITE
def test_a_job_that_compares_roots_keeps_no_sketches(new_floor: NewFloor) -> None:
    floor = new_floor(audit={"probability": 1.0})
    for name in (CLASS, CLASS, CLASS, GPU):
        floor.worker(determinism_class=name)
    audited(floor)
    assert [audit.state for audit in audits_of(floor)] == [AuditState.PASSED]
    assert floor.all(TrustedRun) == []
    assert auditors.claim(floor.context, "x", GPU) is None
    assert told(floor.context, floor.job).family is None
    assert pair(GPU, CLASS) == (CLASS, GPU)
