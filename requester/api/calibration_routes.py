"""The route for the evidence of a job's thresholds: public, so that anybody can repeat the same tasks."""

from fastapi import APIRouter

from gradmarket.market.views.calibration_views import CalibrationView, PairView
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.state import Here
from requester.api.views.calibration_views import pair_view
from requester.store import calibrations, jobs, trusted_runs

router = APIRouter(prefix="/v1/jobs", tags=["audits"])

TASKS_TOLD = 100
"""How many tasks are shown for each pair, the newest ones."""


@router.get(
    "/{job_id}/calibration",
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
            pairs.append(
                pair_view(row, trusted_runs.list_compared_tasks(reader, family, (row.one, row.other), TASKS_TOLD))
            )
        return CalibrationView(verifier=verifier.name, family=family, pairs=pairs)
