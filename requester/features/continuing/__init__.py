"""Jobs that go on from another's end."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued
from gradmarket.market.terms import Digest
from gradmarket.market.views.job_views import Extension, JobView
from requester.api.auth_routes import Here, Submitter
from requester.api.idempotency import Key, digest_body
from requester.api.job_routes import STEER, JobPath, job_or_404, post_job
from requester.api.problems import describe_problems
from requester.blobs import Blobs
from requester.context import Context
from requester.feature import Beginning, Feature
from requester.features.continuing import continued_jobs
from requester.store import jobs
from requester.store.listings import unpack_tags
from requester.store.work import RowReader

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "/{job_id}/extend",
    operation_id="extend_job",
    status_code=201,
    response_model=JobView,
    responses={**STEER, **describe_problems(422)},
    summary="Post a job of more rounds that goes on from this one's end",
)
def extend(context: Here, identity: Submitter, job_id: JobPath, wanted: Extension, key: Key = None) -> JSONResponse:
    """It begins from the parameters and the optimizer's state with which the job finishes, which may be running yet.

    With a constant schedule the bits are those of one longer job; one that decays over its rounds (cosine, linear)
    had ended with this job, and goes on as over the rounds of both. Its fields and tags are that job's, `POST /v1/jobs`
    takes others; its deposit is its own. No job's own rounds change: they are under the digest that each offer and the
    escrow name.
    """
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        continued_jobs.check_extendable(jobs.load_spec(job))
    body = {"continue_from": job_id, **wanted.model_dump(exclude_none=True)}
    return post_job(context, identity, body | {"tags": unpack_tags(job.tags)}, key, {"extend": digest_body(body)})


class Continuation(Beginning):
    def fill_posted(self, context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
        return continued_jobs.fill_posted(context, body)

    def check_posted(self, context: Context, spec: JobSpec, token: str) -> None:
        continued_jobs.check_continued(context, spec, token)

    def explain_draft(self, reader: RowReader, spec: JobSpec, token: str) -> str:
        return continued_jobs.explain_draft(reader, spec, token)

    def find_start(self, reader: RowReader, spec: JobSpec) -> JobSpec | None:
        return continued_jobs.find_start(reader, spec)

    def check_state_fits(
        self, reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays
    ) -> Digest:
        return continued_jobs.check_state_fits(reader, blobs, start, layout, fresh)


class ContinuingFeature(Feature):
    name = "continuing"
    routers = (router,)
    beginning = Continuation()
