"""A job's rounds, and the updates between their parameters."""

from dataclasses import asdict
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path

from gradmarket.market.rules import overlap
from gradmarket.market.views.job_views import RoundView, UpdatePath, UpdateView
from gradmarket.market.views.service_views import Page
from requester.api.auth_routes import Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404, unit_of
from requester.api.job_views import round_view
from requester.api.paging import MOST, Cursor, Limit, load_list_page
from requester.moves import blob_cleanup
from requester.store import blob_needs, jobs, listings
from requester.store.tables import Round

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("/{job_id}/rounds", operation_id="list_rounds", responses=NO_JOB)
def rounds(context: Here, job_id: JobPath, limit: Limit, cursor: Cursor = None) -> Page[RoundView]:
    with context.reading() as reader:
        unit = unit_of(reader, job_id)
        view = partial(round_view, reader, unit=unit)
        return load_list_page(reader, listings.select_rounds(job_id), [Round.number], view, cursor, limit)


@router.get(
    "/{job_id}/rounds/{number}/updates",
    operation_id="get_updates",
    responses=NO_JOB,
    summary="The updates that lead to the parameters of its tasks",
)
def updates(context: Here, job_id: JobPath, number: Annotated[int, Path(ge=0, le=MOST)]) -> UpdatePath:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        spec = jobs.load_spec(job)
        if not spec.downlink.small or job.facts is None:
            return UpdatePath(updates=[])
        most = 1 if spec.visibility == "requester" else blob_cleanup.updates_worth(job)
        last = overlap.starts_after(number, spec.overlap)
        steps = blob_needs.leading_to(reader, job_id, last, most)
        return UpdatePath(updates=[UpdateView(**asdict(step)) for step in steps])
