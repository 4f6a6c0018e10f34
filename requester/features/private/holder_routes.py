"""The route by which a worker takes part in a private job with rows of its own, which stay with it."""

from fastapi import APIRouter, HTTPException

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.private.holder_rows import Holding, HoldingReceipt
from requester.api.auth_routes import SAME_RELEASE, Here, Worker
from requester.api.job_routes import JobPath, job_or_404
from requester.api.problems import describe_problems
from requester.features.private import holder_rows
from requester.store import jobs
from requester.store.locks import retry_on_conflict
from requester.store.work import record_event

router = APIRouter(prefix="/v1/work/holdings", tags=["work"])

NOT_LISTED = "the job names its holders, and this worker is not listed: ask its requester to list your address"


@router.put(
    "/{job_id}",
    operation_id="hold",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 422)},
    summary="Take part in a private job with rows of your own",
)
@retry_on_conflict
def hold(context: Here, worker: Worker, job_id: JobPath, holding: Holding) -> HoldingReceipt:
    """A worker on the job's list writes one row. Nothing of the rows but their number is taken."""
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        data = jobs.load_spec(job).private
        if data is None:
            raise NotFound(f"job {job.id} is not private: its rows are published, and no worker brings its own")
        if job.ended_at is not None:
            raise Conflict(f"the job is {job.state}")
    if worker not in data.holders:
        raise HTTPException(403, NOT_LISTED)
    if holding.rows is not None and holding.rows < data.least_rows:
        raise Refused(f"the job takes holders of {data.least_rows} rows or more, not of {holding.rows}")
    with context.begin() as work:
        rows, new = holder_rows.record_holder(work, job_id, worker, holding.rows, context.clock())
        if new:
            record_event(work, job_id, "holder_joined", context.clock(), worker=worker)
            work.notify("assign", "settle")
    return HoldingReceipt(job=job_id, rows=rows)
