"""Routes to post, watch, pause, resume and cancel jobs, and to read everything about them."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from secrets import randbits, token_bytes, token_hex
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import ValidationError

from gradmarket.market.errors import IllegalTransition, JobRefused, NotFound, Refused
from gradmarket.market.fields import ID, TAG, faults_of
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit, in_smallest
from gradmarket.market.rules import lifecycle, overlap
from gradmarket.market.terms import Digest, JobState, Role
from gradmarket.market.views.job_views import JobView, RoundView, UpdatePath, UpdateView
from gradmarket.market.views.service_views import Page
from requester.api.auth_routes import ROLE, WORKER, AnyoneOrNobody, Here, Identity, Submitter, token_needed
from requester.api.blob_routes import ELSEWHERE, KEPT, PART, WHOLE, build_blob_response
from requester.api.idempotency import Key, answer_once, digest_body, find_answer
from requester.api.job_views import Standing, job_view, read_standing, round_view
from requester.api.paging import MOST, CostliestLimit, Cursor, Limit, load_list_page, load_page_rows
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import beginning_of, features_of
from requester.moves import blob_cleanup
from requester.moves.admission import admit_job, complete_spec, lay_out
from requester.moves.ending import end_job
from requester.moves.resume import resume_job
from requester.store import blob_needs, jobs, listings
from requester.store.listings import pack_tags
from requester.store.locks import lock_row
from requester.store.tables import Job, Round
from requester.store.work import RowReader, Work, record_event

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JobPath = Annotated[str, Path(pattern=ID)]
NO_JOB = describe_problems(404)
JOB: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/JobSpec"}}}
POSTED: Final = {"content": JOB, "required": True}
"""The body of a posted job in `/openapi.json`: amounts with a unit become the token's smallest unit first."""
STEER = {**ROLE, **describe_problems(404, 409)}


def job_or_404(reader: RowReader, job_id: str) -> Job:
    job = reader.get(Job, job_id)
    if job is None:
        raise NotFound(f"no job {job_id[:80]}")
    return job


def unit_of(reader: RowReader, job_id: str) -> str:
    """Returns the job's unit, where nothing else of it is needed."""
    unit = jobs.find_unit(reader, job_id)
    if unit is None:
        raise NotFound(f"no job {job_id[:80]}")
    return unit


def lock_own_job(work: Work, job_id: str, who: Identity) -> Job:
    """Locks and returns the job; raises 403 if another token posted it."""
    job = lock_row(work, Job, job_or_404(work, job_id).id)
    if who.role != Role.ADMIN and job.token != who.subject:
        raise HTTPException(403, "the job was posted with another token: steer it with that one, or an admin's")
    return job


def load_job_view(context: Context, reader: RowReader, job: Job) -> JobView:
    standing = read_standing(reader, job, context.clock())
    return _build_job_view(job, jobs.latest_closed(reader, job.id), standing)


def _build_job_view(job: Job, newest: Round | None, standing: Standing) -> JobView:
    return job_view(job, jobs.load_spec(job), newest, standing)


def load_public_job_views(context: Context, reader: RowReader, request: Request, rows: Sequence[Job]) -> list[JobView]:
    """Returns views for strangers: a feature may cache the counts over all rows of a job, until its state changes."""
    newest = jobs.newest_closed(reader, [job.id for job in rows])
    views = []
    for job in rows:
        last = newest.get(job.id)
        make, mark = partial(read_standing, reader, job, context.clock()), mark_standing(job, last)
        cached = (feature.cache_standing(request, job.id, mark, make) for feature in features_of(reader))
        standing = next((one for one in cached if one is not None), None)
        views.append(_build_job_view(job, last, make() if standing is None else standing))
    return views


def mark_standing(job: Job, newest: Round | None) -> str:
    """Returns a text that changes with the state and the newest closed round of the job."""
    return f"{job.state} {newest.number if newest else -1}"


def amount_of(context: Here, written: str, field: str = "amount") -> int:
    """Returns an amount in the smallest unit. Raises JobRefused for one that this service's token does not have."""
    try:
        return TokenUnit.of(context.chain_facts).parse(written)
    except Refused as error:
        raise JobRefused(field, error.detail) from error


@router.post(
    "",
    operation_id="create_job",
    status_code=201,
    response_model=JobView,
    responses={**ROLE, **describe_problems(409)},
    summary="Post a job; workers will see its model and data",
    openapi_extra={"requestBody": POSTED},
)
def submit(
    context: Here, identity: Submitter, body: Annotated[dict[str, Any], Body()], key: Key = None
) -> JSONResponse:
    return post_job(context, identity, body, key, {"submit": digest_body(body)})


def post_job(
    context: Context, identity: Identity, body: dict[str, Any], key: str | None, asked: dict[str, Any]
) -> JSONResponse:
    if (known := find_answer(context, identity.subject, key, asked)) is not None:
        return known  # before the body is filled from the continued job, which may have changed since
    try:
        smallest = in_smallest(body, lambda: TokenUnit.of(context.chain_facts))
        spec = JobSpec.model_validate(beginning_of(context).fill_posted(context, smallest))
    except ValidationError as error:
        entries = [{**entry, "loc": ("body", *entry["loc"])} for entry in faults_of(error)]
        raise RequestValidationError(entries, body=body) from error
    admitted = admit_job(context, spec, identity.subject)
    whole = complete_spec(spec, randbits(63))

    def act(work: Work) -> tuple[int, JobView, str]:
        job = Job(
            id=token_hex(8),
            state=JobState.DRAFT,
            reason=beginning_of(work).explain_draft(work, whole, identity.subject),
            spec=whole.model_dump(mode="json"),
            visibility=spec.visibility,
            token=identity.subject,
            secret=token_bytes(32),
            unit=str(admitted.unit),
            price=admitted.most,
            budget=admitted.budget,
            deposited=0,
            refunded=0,
            created_at=context.clock(),
            compute_seconds=0.0,
            tags=pack_tags(spec.tags),
            note=spec.note,
        )
        work.add(job)
        work.flush()
        record_event(work, job.id, "submitted", context.clock(), name=spec.name)
        lay_out(context, work, job, identity.subject, admitted.budget)
        work.notify("publish")
        return 201, load_job_view(context, work, job), f"/v1/jobs/{job.id}"

    return answer_once(context, identity.subject, key, asked, act)


@router.get("", operation_id="list_jobs", summary="All jobs, oldest first")
def listed(
    context: Here,
    request: Request,
    limit: CostliestLimit,
    cursor: Cursor = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state")] = None,
    tag: Annotated[str | None, Query(description="Only jobs with this tag", pattern=TAG)] = None,
) -> Page[JobView]:
    keys = [Job.created_at, Job.id]
    with context.reading() as reader:
        shown, more = load_page_rows(reader, listings.select_jobs(state, tag), keys, cursor, limit)
        return Page(items=load_public_job_views(context, reader, request, shown), next=more)


@router.get("/{job_id}", operation_id="get_job", responses=NO_JOB, summary="One job, and why it does not get on")
def shown(context: Here, request: Request, job_id: JobPath) -> JobView:
    with context.reading() as reader:
        return load_public_job_views(context, reader, request, [job_or_404(reader, job_id)])[0]


@router.post(
    "/{job_id}/cancel",
    operation_id="cancel_job",
    response_model=JobView,
    responses=STEER,
    summary="End a job; money that is not owed comes back",
)
def cancel(context: Here, identity: Submitter, job_id: JobPath, key: Key = None) -> JSONResponse:
    def act(work: Work) -> tuple[int, JobView, None]:
        job = lock_own_job(work, job_id, identity)
        if job.state != JobState.CANCELLED:
            _check_step(job, JobState.CANCELLED, "cancelled")
            end_job(context, work, job, JobState.CANCELLED, "cancelled by its requester")
        return 200, load_job_view(context, work, job), None

    return answer_once(context, identity.subject, key, {"cancel": job_id}, act)


@router.post(
    "/{job_id}/pause",
    operation_id="pause_job",
    response_model=JobView,
    responses=STEER,
    summary="Give out no more leases",
)
def pause(context: Here, identity: Submitter, job_id: JobPath, key: Key = None) -> JSONResponse:
    def act(work: Work) -> tuple[int, JobView, None]:
        job = lock_own_job(work, job_id, identity)
        if job.state != JobState.PAUSED:
            _check_step(job, JobState.PAUSED, "paused")
            work.set_state_now(job, JobState.PAUSED, reason="paused by its requester")
            record_event(work, job_id, "paused", context.clock(), reason=job.reason)
        return 200, load_job_view(context, work, job), None

    return answer_once(context, identity.subject, key, {"pause": job_id}, act)


@router.post(
    "/{job_id}/resume",
    operation_id="resume_job",
    response_model=JobView,
    responses=STEER,
    summary="Go on after a pause",
)
def resume(context: Here, identity: Submitter, job_id: JobPath, key: Key = None) -> JSONResponse:
    def act(work: Work) -> tuple[int, JobView, None]:
        job = lock_own_job(work, job_id, identity)
        if job.state != JobState.RUNNING:
            _check_step(job, JobState.RUNNING, "resumed")
        resume_job(context, work, job)
        return 200, load_job_view(context, work, job), None

    return answer_once(context, identity.subject, key, {"resume": job_id}, act)


def _check_step(job: Job, new: JobState, wanted: str) -> None:
    """Raises IllegalTransition, worded for the caller, where the job's state has no such step."""
    if new in lifecycle.JOB[JobState(job.state)]:
        return
    over = lifecycle.is_final_state(JobState(job.state))
    more = f"`gradmarket job extend {job.id} --rounds N` posts more rounds" if job.state == JobState.FINISHED else ""
    remedy = more or ("post it again" if over else "wait until it runs, or cancel it")
    raise IllegalTransition(f"the job is {job.state.replace('_', ' ')}: it cannot be {wanted}", remedy)


@router.get(
    "/{job_id}/parameters",
    operation_id="get_parameters",
    response_class=FileResponse,
    responses={**WHOLE, **PART, **ELSEWHERE, **ROLE, **NO_JOB},
    summary="The newest parameters, or those after a round",
)
def parameters(
    context: Here,
    request: Request,
    who: AnyoneOrNobody,
    job_id: JobPath,
    after: Annotated[int | None, Query(alias="round", ge=0, le=MOST)] = None,
) -> Response:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        check_visible(job, who)
        row = jobs.latest_closed(reader, job_id) if after is None else reader.get(Round, (job_id, after))
        digest = row.updated if row is not None else None
        if digest is None and after is None:
            digest = (job.publication or {}).get("parameters")
    if digest is None or not context.blobs.has(Digest(digest)):
        kept = f"`gradmarket job checkpoints {job_id[:80]}` lists those that are stored"
        raise NotFound(f"no parameters after round {after} of job {job_id[:80]}: {kept}", kept)
    name = f"{job_id}-{'newest' if after is None else after}.safetensors"
    return build_blob_response(context, request, Digest(digest), name)


def check_visible(job: Job, who: Identity | None) -> None:
    """Raises 401 or 403 unless the caller may read the job's parameters."""
    if job.visibility != "public" and who is None:
        raise token_needed()
    if job.visibility == "requester" and who is not None and who.role == WORKER:
        raise HTTPException(403, KEPT)


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
