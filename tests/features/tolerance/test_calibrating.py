"""Thresholds from trusted runs: answers of two classes' auditors to one task count, and nothing else does."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.tolerance import LEAST, MARGIN, RUNS
from gradmarket.market.rules.verifiers.tolerance import sort_classes
from gradmarket.market.terms import AuditState, CalibrationState, Hash, JobState
from requester.features.audits import auditor_claims
from requester.features.audits.audit_kind import Asker
from requester.features.audits.auditor_claims import Claimed
from requester.features.tolerance import calibrating
from requester.features.tolerance.calibration_routes import calibration as told
from requester.features.tolerance.trusted_runs import TrustedRun
from tests.features.tolerance.market_calibrating import (
    GPU,
    NAMES,
    TOLERANT,
    TPU,
    NewMarket,
    allowed,
    audited,
    auditor,
    pairs,
    store_runs,
    to_calibrate,
    tolerant,
)
from tests.kit.behaviour import HONEST, scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, MarketFixture


def test_answers_of_two_classes_become_a_public_threshold(new_market: NewMarket) -> None:
    market = tolerant(new_market, GPU, TPU)
    store_runs(market, RUNS - 1)
    audited(market)
    assert (auditor(market).work(), auditor(market, TPU, 3e-6).work()) == (1, 1)
    found = pairs(market)
    assert {classes: (row.state, row.runs) for classes, row in found.items()} == {
        (CLASS, GPU): (CalibrationState.CALIBRATED, RUNS),
        (CLASS, TPU): (CalibrationState.GATHERING, 1),
        (GPU, TPU): (CalibrationState.GATHERING, 1),
    }
    (thresholds,) = allowed(market).values()
    largest = found[CLASS, GPU].largest
    assert thresholds == {name: max(LEAST, MARGIN * largest[name]) for name in NAMES}
    assert 5e-7 < largest["w"] < 2e-6
    assert [event["classes"] for event in market.events("calibrated")] == [[CLASS, GPU]]
    line = told(market.context, market.job).pairs[0]
    assert (line.classes, line.state, line.runs) == ((CLASS, GPU), CalibrationState.CALIBRATED, RUNS)
    assert line.confidence > 0.95
    assert {tensor.name: tensor.threshold for tensor in line.tensors} == thresholds
    task, roots = market.tasks()[0], {run.determinism_class: run.root for run in market.all(TrustedRun)}
    assert line.tasks == []  # its answer is unpublished as long as an audit may have the task done again
    market.cancel()
    line = told(market.context, market.job).pairs[0]
    assert [(row.task, row.roots) for row in line.tasks] == [(task.id, (roots[CLASS], roots[GPU]))]
    assert roots[CLASS] == task.root != roots[GPU]


def test_fewer_than_59_runs_allow_nothing(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    store_runs(market, RUNS - 2)
    audited(market)
    auditor(market).work()
    assert pairs(market)[CLASS, GPU].runs == RUNS - 1
    assert allowed(market) == {}
    assert market.events("calibrated") == []


def test_a_task_is_to_calibrate_with_once_it_passed_one_auditor_at_a_time(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    market.until(lambda: audits_of(market))
    gpu = auditor(market)
    assert gpu.claim() is None
    audited(market)
    first = to_calibrate(market, gpu)
    assert (first.task, first.run) == (market.tasks()[0].id, 0)
    assert gpu.claim() is None
    assert SimAuditor(market).claim() is None
    market.clock.now += first.seconds + 1
    assert to_calibrate(market, auditor(market)).task == first.task


def test_a_calibrated_pair_is_checked_further_while_workers_of_its_class_are_present(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    store_runs(market, RUNS)
    audited(market)
    gpu = auditor(market)
    assert gpu.claim() is None
    present = market.worker(determinism_class=GPU)
    present.capacity = 0
    present.request_work()
    assert to_calibrate(market, gpu).task == market.tasks()[0].id


def test_a_lie_is_never_taken_for_trusted_nor_is_any_workers_sketch(new_market: NewMarket) -> None:
    """The liars' payload was accepted, and an audit found another: neither shows the deviation of honest answers."""
    market = tolerant(new_market)
    for worker in market.workers[:2]:
        worker.behaviour = scaled(1.0001)
    market.until(lambda: audits_of(market))
    SimAuditor(market).work()
    assert [audit.state for audit in audits_of(market)] == [AuditState.FAILED]
    assert auditor(market).claim() is None
    assert market.all(TrustedRun) == []
    market.worker(), market.worker()
    audited(market, 2)
    auditor(market).work()
    assert {(run.determinism_class, run.auditor) for run in market.all(TrustedRun)} == {
        (CLASS, "auditor"),
        (GPU, f"the {GPU}"),
    }


def test_trusted_answers_without_their_claim_are_refused(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    audited(market)
    gpu, context = auditor(market), market.context
    claimed = to_calibrate(market, gpu)
    sketch = gpu.sketched(claimed).sketch
    fewer, other = dict(list(sketch.items())[1:]), sketch | {"x": sketch["w"]}
    for changes, error, why in (
        ({"determinism_class": TPU}, NotFound, "claimed in this class"),
        ({"auditor": "another"}, Conflict, "another auditor"),
        ({"run": 1}, Conflict, "claim one"),
        ({"sketch": fewer}, Refused, "other tensors .* loss"),
        ({"sketch": other}, Refused, "other tensors .* x"),
    ):
        with pytest.raises(error, match=why):
            calibrating.record_trusted_answer(context, claimed.task, gpu.sketched(claimed, **changes))
    with pytest.raises(NotFound):
        calibrating.record_trusted_answer(context, "no-such-task", gpu.sketched(claimed))
    assert pairs(market) == {}


def test_the_same_answer_counts_once_and_another_is_a_conflict(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    audited(market)
    gpu = auditor(market)
    claimed = to_calibrate(market, gpu)
    for _ in range(3):
        assert not gpu.answer(claimed)
    assert pairs(market)[CLASS, GPU].runs == 1
    root, noise = audits_of(market)[0].root, auditor(market, deviation=1e-4).sketched(claimed).sketch
    for changes in ({"root": root}, {"sketch": noise}):
        with pytest.raises(Conflict):
            calibrating.record_trusted_answer(market.context, claimed.task, gpu.sketched(claimed, **changes))
    before = market.all(TrustedRun)
    own = gpu.sketched(claimed, determinism_class=CLASS, root=root, auditor="auditor")
    with pytest.raises(Conflict):
        calibrating.record_trusted_answer(market.context, claimed.task, own)
    assert [run.sketch for run in market.all(TrustedRun)] == [run.sketch for run in before]


@FULL
def test_a_pair_whose_noise_hides_lies_is_refused_with_its_reason_and_not_asked_again(new_market: NewMarket) -> None:
    market = tolerant(new_market, GPU, tasks_per_round=2)
    store_runs(market, RUNS + 1)
    assert allowed(market)
    audited(market, 2)
    noisy = auditor(market, deviation=6e-4)
    claimed = to_calibrate(market, noisy)
    assert noisy.answer(claimed)
    assert allowed(market)
    assert not noisy.answer(claimed, again=1)
    assert allowed(market) == {}
    (event,) = market.events("calibration_refused")
    assert event["classes"] == [CLASS, GPU]
    assert "over 5e-03" in event["reason"]
    assert noisy.claim() is None
    assert told(market.context, market.job).pairs[0].reason == event["reason"]


@pytest.mark.parametrize(
    "wrongly",
    [
        lambda market, claimed: auditor(market, deviation=0.1).answer(claimed),
        lambda market, claimed: auditor(market).answer(replace(claimed, wave_seed=Hash(bytes(32)))),
    ],
    ids=["another answer", "under another seed"],
)
def test_an_auditor_that_errs_once_spoils_no_pair(
    new_market: NewMarket, wrongly: Callable[[MarketFixture, Claimed], bool]
) -> None:
    market = tolerant(new_market, GPU)
    store_runs(market, RUNS)
    audited(market)
    claimed = to_calibrate(market, auditor(market))
    assert wrongly(market, claimed)
    assert len(market.events("calibration_unsure")) == 1
    assert not auditor(market).answer(claimed, again=1)
    assert pairs(market)[CLASS, GPU].state == CalibrationState.CALIBRATED
    assert max(allowed(market)[CLASS, GPU].values()) < 1e-4


def test_a_threshold_grows_with_honest_noise_and_records_an_event(new_market: NewMarket) -> None:
    market = tolerant(new_market, GPU)
    store_runs(market, RUNS)
    before = allowed(market)[CLASS, GPU]
    audited(market)
    auditor(market, deviation=1e-5).work()
    after = allowed(market)[CLASS, GPU]
    assert after["w"] > before["w"]
    assert market.events("calibrated") == []
    (event,) = market.events("threshold_raised")
    assert event["threshold"] == max(after.values())


def test_jobs_alike_share_what_was_found_and_others_do_not(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    store_runs(market, RUNS)
    for number, (spec, same) in enumerate(
        (({"seed": 8, "rounds": 7}, True), ({"uplink": {"codec": "bf16"}}, False), ({"precision": "bf16"}, False),
         ({"step": {"rows": 2}}, False))
    ):  # fmt: skip
        job = f"{number:016x}"
        market.also(job, 8 + number, **(TOLERANT | spec))
        assert bool(allowed(market, job)) == same


@FULL
def test_an_ended_job_still_calibrates_for_those_like_it_until_that_is_done(new_market: NewMarket) -> None:
    market = tolerant(new_market, tasks_per_round=2)
    store_runs(market, RUNS - 1)
    audited(market, 2)
    market.cancel()
    gpu = auditor(market)
    assert gpu.work() == 1
    assert pairs(market)[CLASS, GPU].state == CalibrationState.CALIBRATED


@FULL
def test_no_task_is_asked_for_whose_parameters_are_gone(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    sketched = {run.round: run.sketch is not None for run in market.all(TrustedRun)}
    assert sketched == {0: False, 1: True, 2: True}
    gpu, asked = auditor(market), set()
    while claimed := gpu.claim():
        asked.add(claimed.task)
        assert not gpu.answer(claimed)
    assert asked == {task.id for task in market.tasks() if task.round >= 1}


def test_a_round_that_is_taken_back_leaves_nothing_to_calibrate_with(new_market: NewMarket) -> None:
    market = tolerant(new_market)
    for worker in market.workers:
        worker.behaviour = scaled(3.0)
    market.until(lambda: audits_of(market))
    for worker in market.workers:
        worker.behaviour = HONEST
    market.until(lambda: len(audits_of(market)) == 2)
    both = SimAuditor(market)
    first, second = both.claim(), both.claim()
    assert first is not None
    assert second is not None
    assert not both.answer(second)
    market.drive()
    assert [run.round for run in market.all(TrustedRun)] == [1]
    assert both.answer(first)
    assert not both.answer(first, again=1)
    market.drive()
    assert market.events("rewound")
    assert auditor(market).claim() is None


def test_a_job_that_compares_roots_keeps_no_sketches(new_market: NewMarket) -> None:
    market = new_market(audit={"probability": 1.0})
    for name in (CLASS, CLASS, CLASS, GPU):
        market.worker(determinism_class=name)
    audited(market)
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]
    assert market.all(TrustedRun) == []
    assert auditor_claims.claim_next_audit(market.context, Asker("x", "requester", GPU)) is None
    assert told(market.context, market.job).family is None
    assert sort_classes(GPU, CLASS) == (CLASS, GPU)
