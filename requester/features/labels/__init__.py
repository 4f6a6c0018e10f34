"""Labels: tags and a note on a job, which its requester may change at any time."""

from fastapi import APIRouter

from gradmarket.market.fields import Note, Part, Tags
from gradmarket.market.views.job_views import JobView
from requester.api.auth_routes import Here, Submitter
from requester.api.job_routes import STEER, JobPath, load_job_view, lock_own_job
from requester.api.problems import describe_problems
from requester.feature import Feature
from requester.store.listings import pack_tags


class Labels(Part):
    """The new labels of a job; null keeps a label as it is."""

    tags: Tags | None = None
    note: Note | None = None


router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.patch(
    "/{job_id}",
    operation_id="label_job",
    responses={**STEER, **describe_problems(422)},
    summary="Write tags and a note on a job, which may be over",
)
def label(context: Here, identity: Submitter, job_id: JobPath, wanted: Labels) -> JobView:
    with context.begin() as work:
        job = lock_own_job(work, job_id, identity)
        if wanted.tags is not None:
            job.tags = pack_tags(wanted.tags)
        if wanted.note is not None:
            job.note = wanted.note
        return load_job_view(context, work, job)


class LabelsFeature(Feature):
    name = "labels"
    routers = (router,)
