"""Learns the thresholds of `tolerance` from audited tasks that auditors of other classes computed too.

Only trusted runs count. An auditor whose audit passed has sketched its own answer, which is the accepted one. An
auditor of another class that has nothing to audit computes the same task and answers with its sketch. Sketches that
workers revealed do not count, so a threshold only grows by the deviations of honest machines as the training goes on.
"""

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.tolerance import Evidence
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.verifiers.tolerance import compute_deviations, sort_classes
from gradmarket.market.terms import CalibrationState
from gradmarket.market.wire.audit_messages import SketchAnswer
from requester.context import Context
from requester.features.audits.audit_tables import Audit
from requester.features.tolerance import calibrations, trusted_runs
from requester.features.tolerance.calibrations import Calibration
from requester.features.tolerance.trusted_runs import TrustedRun
from requester.store import ballots
from requester.store.locks import lock_row
from requester.store.tables import Job, Task
from requester.store.work import Work, record_event


def record_trusted_run(work: Work, job: Job, audit: Audit, now: float) -> None:
    """Records the auditor's sketch as a trusted run of its class, in the transaction in which the audit passes."""
    if audit.sketch is not None:
        trusted_runs.of_audit(work, audit, calibrations.family_of(job), now)


def claim_trusted_run(work: Work, auditor: str, determinism_class: str, now: float) -> TrustedRun | None:
    """Claims a task that this class must compute too, for the length of a lease; returns None without one."""
    known = trusted_runs.find_wanted_run(work, determinism_class, now)
    if known is None:
        return None
    task = lock_row(work, Task, known.task_id)
    run = trusted_runs.find_current_run(work, task.id, determinism_class) or TrustedRun(
        task_id=task.id,
        determinism_class=determinism_class,
        job_id=task.job_id,
        round=task.round,
        family=known.family,
        runs=0,
        created_at=now,
    )
    if run.ended_at is not None or (run.claimed_until is not None and run.claimed_until >= now):
        return None  # another auditor was quicker
    run.auditor, run.claimed_until = auditor, now + task.offer.lease_seconds
    work.add(run)
    work.flush()
    return run


def record_trusted_answer(context: Context, task_id: str, answer: SketchAnswer) -> bool:
    """Takes the answer of a run; returns whether the task is to be run once more.

    Repeating the answer of a run changes nothing. Raises Conflict for another answer of the same run, and for a run of
    an auditor that did not claim the task last; NotFound if nobody of the class claimed it; Refused if the sketch has
    other tensors.
    """
    now = context.clock()
    with context.begin() as work:
        run = work.get(TrustedRun, (task_id, answer.determinism_class))
        if run is None:
            raise NotFound(f"no run of task {task_id[:80]} was claimed in this class")
        task = lock_row(work, Task, task_id)
        work.refresh(run)
        job = work.get_one(Job, task.job_id)
        names = set(ballots.list_tensor_names(job))
        if answer.sketch.keys() != names:
            differing = sorted(answer.sketch.keys() ^ names)[:5]
            raise Refused(f"the sketch has other tensors than an answer in this job: {', '.join(differing)[:200]}")
        if run.ended_at is not None or answer.run < run.runs:
            if run.root != answer.root or run.sketch not in (None, _pack_answer_sketch(job, answer)):
                raise Conflict(f"run {run.runs - 1} of the task in this class gave another result")
            return run.ended_at is None
        if (answer.auditor, answer.run) != (run.auditor, run.runs):
            raise Conflict(f"run {run.runs} of the task in this class was claimed by another auditor: claim one")
        return _store_trusted_run(work, job, task, run, answer, now)


def _pack_answer_sketch(job: Job, answer: SketchAnswer) -> bytes:
    return sketch_packing.pack_sketch(sketch_packing.decode_sketch(answer.sketch), ballots.list_tensor_names(job))


def _store_trusted_run(work: Work, job: Job, task: Task, run: TrustedRun, answer: SketchAnswer, now: float) -> bool:
    """Stores the run and updates its pairs of classes; returns whether the task is to be run once more.

    A pair is refused only if two runs give the same answer, so that one error of an auditor spoils no pair.
    """
    before = run.root
    run.runs += 1
    run.root, run.seconds = answer.root, answer.seconds
    # the pairs of classes that this run is evidence for, with it; in one fixed order, since their rows are locked
    names, own = ballots.list_tensor_names(job), sketch_packing.decode_sketch(answer.sketch)
    compared = list[tuple[Calibration, Evidence]]()
    for other in trusted_runs.list_comparable_runs(work, run):
        pair = sort_classes(run.determinism_class, other.determinism_class)
        row = calibrations.lock_calibration(work, run.family, pair, now)
        if row.state != CalibrationState.REFUSED:
            apart = compute_deviations(own, sketch_packing.unpack_sketch(other.sketch or b"", names))
            compared.append((row, calibrations.build_evidence(row).and_run(apart)))
    if before != answer.root and any(after.excess for _, after in compared):
        run.claimed_until = now + task.offer.lease_seconds
        record_event(work, job.id, "calibration_unsure", now, task=task.id, determinism_class=run.determinism_class)
        return True
    run.claimed_until, run.ended_at = None, now
    if compared:
        run.sketch = _pack_answer_sketch(job, answer)
    for row, after in compared:
        state, threshold = row.state, max(calibrations.build_evidence(row).tau.values(), default=0.0)
        calibrations.store_evidence(work, row, after, now)
        classes, largest = [row.one, row.other], max(after.tau.values(), default=0.0)
        if after.state == CalibrationState.REFUSED:
            record_event(
                work, job.id, "calibration_refused", now, classes=classes, runs=after.runs, reason=after.excess
            )
        elif after.state == CalibrationState.CALIBRATED and (state != after.state or largest > threshold):
            kind = "calibrated" if state != after.state else "threshold_raised"
            record_event(work, job.id, kind, now, classes=classes, runs=after.runs, threshold=largest)
            work.notify("assign")
    return False
