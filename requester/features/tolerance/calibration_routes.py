"""Routes for the evidence of a job's thresholds, which is public, and for the sketches that auditors bring to it."""

from fastapi import APIRouter

from gradmarket.market.features.tolerance import RUNS
from gradmarket.market.terms import Digest, TaskId
from gradmarket.market.views.trust_views import CalibrationView, ComparedView, PairView, TensorView
from gradmarket.market.wire.audit_messages import AuditReceipt, SketchAnswer
from requester.api.auth_routes import SAME_RELEASE, Auditor, Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.job_views import format_time
from requester.api.problems import describe_problems
from requester.features.audits.audit_routes import TaskPath
from requester.features.tolerance import calibrating, calibrations, trusted_runs
from requester.store import jobs
from requester.store.locks import retry_on_conflict

router = APIRouter(prefix="/v1", tags=["audits"])

TASKS_TOLD = 100
"""Newest tasks that are shown for each pair."""


@router.get(
    "/jobs/{job_id}/calibration",
    operation_id="get_calibration",
    responses=NO_JOB,
    summary="How far honest answers of two determinism classes may deviate in this job, and why so far",
)
def calibration(context: Here, job_id: JobPath) -> CalibrationView:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        verifier, pairs = jobs.load_spec(job).verifier, list[PairView]()
        if job.publication is None or not verifier.sketched:
            return CalibrationView(verifier=verifier.name, family=None, pairs=pairs)
        family = calibrations.family_of(job)
        for row in calibrations.of_family(reader, family):
            compared = trusted_runs.list_compared_tasks(reader, family, (row.one, row.other), TASKS_TOLD)
            known = calibrations.build_evidence(row)
            tau = known.tau
            pairs.append(
                PairView(
                    classes=(row.one, row.other),
                    state=row.state,
                    reason=known.excess,
                    runs=known.runs,
                    runs_needed=RUNS,
                    confidence=known.confidence,
                    tensors=[
                        TensorView(name=name, largest=known.largest[name], threshold=tau[name])
                        for name in known.largest
                    ],
                    tasks=[
                        ComparedView(task=TaskId(task), roots=(Digest(one), Digest(other)))
                        for task, one, other in compared
                    ],
                    changed_at=format_time(row.changed_at),
                )
            )
        return CalibrationView(verifier=verifier.name, family=family, pairs=pairs)


@router.put(
    "/audits/{task_id}/sketch",
    operation_id="send_audit_sketch",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="The sketch that an auditor of another class made of its own answer to a task that passed its audit",
)
@retry_on_conflict
def sketch(context: Here, _identity: Auditor, task_id: TaskPath, answer: SketchAnswer) -> AuditReceipt:
    return AuditReceipt(again=calibrating.record_trusted_answer(context, task_id, answer))
