"""The web page: the API's public data for human readers, and a form for tokens that may submit jobs.

A page is rendered once for all its viewers, in a share of the time of its own (answer_cache), so viewers cannot slow
a job. It is rendered anew after an event of its job, or after a second. A viewer that watches a job holds one
stream, in which the service sends the part that changes (live_parts).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi import Query as InQuery
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from sqlalchemy import select
from starlette.datastructures import State

from gradmarket.market.errors import JobRefused, NotFound
from gradmarket.market.fields import ADDRESS
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit, in_smallest
from gradmarket.market.terms import Amount, JobState
from gradmarket.network.environment import path_of
from gradmarket.pages import build_html_response
from gradmarket.price_guide import describe_guidance
from requester.api import problem_kinds
from requester.api.auth_routes import WORKER, Admin, AnyoneOrNobody, Callers, Here, Submitter
from requester.api.callers import parse_bearer_token
from requester.api.job_routes import JobPath, job_or_404
from requester.context import Context
from requester.feature import Feature
from requester.features import price_guide
from requester.features.answer_cache import Recent, Share, Source
from requester.features.coverage import read_books
from requester.features.event_streams import FollowedJob, event_tail
from requester.features.health import Probe
from requester.features.pages import (
    coverage_page,
    job_form,
    job_page,
    market_page,
    operator_page,
    runs_page,
    story_page,
    worker_page,
)
from requester.features.pages.live_parts import LiveParts, PagePart
from requester.features.pages.market_page import JobQuery
from requester.features.pages.measured import VIEWERS, load_page_measures
from requester.features.pages.page_route import PageRoute, render_template
from requester.features.pages.runs_page import RunsQuery
from requester.moves.admission import admit_job
from requester.serving import build_join_command
from requester.store import jobs
from requester.store.listings import unpack_tags
from requester.store.tables import Job
from requester.store.work import RowReader

router = APIRouter(include_in_schema=False, route_class=PageRoute)

EVENT_STREAM: Final = "text/event-stream"
Query = Annotated[JobQuery, InQuery()]
Runs = Annotated[RunsQuery, InQuery()]
AddressPath = Annotated[str, Path(pattern=ADDRESS)]


@router.get("/docs")
def docs(context: Here) -> Response:
    """Shows the API's description, by scripts of our own origin."""
    return build_html_response(render_template(context.public_url, "docs.html"))


@router.get("/redoc")
def redoc(context: Here) -> Response:
    return RedirectResponse(f"{path_of(context.public_url)}/docs", 308)


@router.get("/")
def market(context: Here, request: Request, query: Query) -> Response:
    url, facts = context.public_url, context.chain_facts
    join = build_join_command(url, facts)
    # the --rpc that a machine beyond a tunnel adds, where the service answers its own machine alone
    door = f"--rpc {url}/chain" if facts.rpc and f"{url}/chain" not in join else ""
    found = {"query": query, "states": list(JobState), "join": join, "door": door}
    return _render_page(context, "market.html", _render_market(context, request, query), **found)


@router.get("/page/market")
def market_now(context: Here, request: Request, query: Query) -> Response:
    return build_html_response(_render_market(context, request, query))


def _render_market(context: Context, request: Request, query: JobQuery) -> str:
    # the name of the viewer's API token, if it sends one that is valid
    callers: Callers = request.app.state.callers
    sent = parse_bearer_token(request.scope) if query.mine else None
    viewer = callers.find(context, sent) if sent else None
    token = viewer.subject if viewer is not None and viewer.role != WORKER else None

    def make() -> str:
        with context.reading() as reader:
            page = market_page.build_market_page(context, reader, request, query, token)
            return render_template(context.public_url, "market_now.html", page=page, facts=context.chain_facts)

    return _render_cached(request, f"market {token} {query.link(query.page)}", str(int(context.clock())), make)


@router.get("/runs")
def runs(context: Here, request: Request, query: Runs) -> Response:
    return _render_page(context, "runs.html", _render_runs(context, request, query), query=query)


@router.get("/page/runs")
def runs_now(context: Here, request: Request, query: Runs) -> Response:
    return build_html_response(_render_runs(context, request, query))


def _render_runs(context: Context, request: Request, query: RunsQuery) -> str:
    with context.reading() as reader:
        known = query.model_copy(update={"job": list_known_ids(reader, query.job)})

    def make() -> str:
        with context.reading() as reader:
            page = runs_page.build_runs_page(context, reader, known)
            return render_template(context.public_url, "runs_now.html", page=page)

    return _render_cached(request, f"runs {known.link()}", str(int(context.clock())), make)


@router.get("/errors")
def errors(context: Here) -> Response:
    """Shows the page to which the `type` of a problem leads."""
    return _render_page(context, "errors.html", "", kinds=problem_kinds.list_problem_kinds())


@router.get("/jobs/{job_id}")
def job(context: Here, request: Request, job_id: JobPath) -> Response:
    now = _render_job(context, request, job_id).text
    with context.reading() as reader:
        row = job_or_404(reader, job_id)
        spec = jobs.load_spec(row)
        known = {"name": spec.name, "notice": spec.notice, "everybody": row.visibility == "public"}
        known |= {"tags": unpack_tags(row.tags), "note": row.note}
    return _render_page(context, "job.html", now, job_id=job_id, **known)


@router.get("/page/jobs/{job_id}")
def job_now(context: Here, request: Request, job_id: JobPath) -> Response:
    """Returns the part of the job's page that changes; as an event stream, each change until the job ends."""
    if request.headers.get("accept") != EVENT_STREAM:
        return build_html_response(_render_job(context, request, job_id).text)
    with context.reading() as reader:
        job_or_404(reader, job_id)
    live: LiveParts = request.app.state.live
    stream = live.follow(job_id, lambda: _render_job(context, request, job_id))
    return FollowedJob(request.app.state.following, request.state.source, stream)


def _render_job(context: Context, request: Request, job_id: str) -> PagePart:
    with context.reading() as reader:
        ended = job_or_404(reader, job_id).ended_at is not None
        mark = str(event_tail.find_newest_event_number(reader, job_id))

    def make() -> str:
        with context.reading() as reader:
            row = job_or_404(reader, job_id)
            known = load_page_measures(context, reader, request, [row])[row.id]
            return render_template(
                context.public_url, "job_now.html", page=job_page.build_job_page(context, reader, row, known)
            )

    text = _render_cached(request, f"job {job_id}", mark, make)
    current = f'data-newest="{mark}"' in text
    return PagePart(text, current, ended and current)


@router.get("/page/jobs/{job_id}/coverage")
def coverage_now(context: Here, request: Request, who: AnyoneOrNobody, source: Source, job_id: JobPath) -> Response:
    """Shows how the job's data is used, to those that may read it, or the reason why nothing is shown yet."""
    try:
        books = read_books(context, request, who, source, job_id)
    except NotFound as error:
        return build_html_response(render_template(context.public_url, "coverage_now.html", page=None, why=str(error)))
    return build_html_response(
        render_template(context.public_url, "coverage_now.html", page=coverage_page.build_coverage_page(books))
    )


@router.get("/jobs/{job_id}/tasks/{task_id}")
def story(context: Here, request: Request, job_id: JobPath, task_id: JobPath) -> Response:
    def make() -> str:
        with context.reading() as reader:
            shown = story_page.build_story_page(context, reader, job_id, task_id)
            return render_template(context.public_url, "story_now.html", page=shown, facts=context.chain_facts)

    now = _render_cached(request, f"task {task_id}", str(int(context.clock())), make)
    return _render_page(context, "story.html", now, job_id=job_id, task_id=task_id)


@router.get("/workers/{address}")
def worker(context: Here, request: Request, address: AddressPath) -> Response:
    def make() -> str:
        with context.reading() as reader:
            return render_template(
                context.public_url, "worker_now.html", page=worker_page.build_worker_page(context, reader, address)
            )

    now = _render_cached(request, f"worker {address.lower()}", str(int(context.clock())), make)
    return _render_page(context, "worker.html", now, address=address)


@router.get("/submit")
def submit(context: Here) -> Response:
    fields, example = job_form.list_form_fields(), job_form.EXAMPLE % context.chain_facts.symbol
    shown = {"usual": fields[: len(job_form.USUAL)], "others": fields[len(job_form.USUAL) :], "example": example}
    return _render_page(context, "submit.html", "", **shown)


@router.post("/page/plan")
def plan(context: Here, identity: Submitter, job: dict[str, Any]) -> Response:
    """Shows the highest cost of the job in the form, or its faults, checked as when it is posted."""
    token, faults, shown, guidance = TokenUnit.of(context.chain_facts), list[tuple[str, str]](), None, ""
    try:
        spec = JobSpec.model_validate(given := in_smallest(job, lambda: token))
        admit_job(context, spec, identity.subject)
        with context.reading() as reader:
            guide = price_guide.load_price_guide(reader, context.clock())
            operations = price_guide.find_known_operations(reader, spec)
        # the prices that others paid, and the workers that would accept this price where the cost is known
        advice = describe_guidance(guide.paid, guide.taken, Amount(spec.price.most), operations, token)
        shown, guidance = job_form.estimate_cost(spec, token), advice[0].upper() + advice[1:]
    except ValidationError as error:
        faults = job_form.list_faults(error, given)
    except JobRefused as error:
        faults = [(error.field, error.detail.removeprefix(f"{error.field}: "))]
    fields = {"faults": faults, "estimate": shown, "guidance": guidance}
    return build_html_response(render_template(context.public_url, "plan.html", **fields))


@router.get("/operator")
def operator(context: Here) -> Response:
    return _render_page(context, "operator.html", "")


@router.get("/page/operator")
def operator_now(context: Here, request: Request, _identity: Admin) -> Response:
    probe: Probe = request.app.state.probe
    parts = probe.look()
    with context.reading() as reader:
        return build_html_response(
            render_template(
                context.public_url, "operator_now.html", page=operator_page.build_operator_page(context, reader, parts)
            )
        )


def _render_page(context: Context, template: str, now: str, **values: object) -> Response:
    """Returns a whole page around the part `now`, which is rendered already."""
    facts = context.chain_facts
    page = render_template(context.public_url, template, now=now, facts=facts, url=context.public_url, **values)
    return build_html_response(page, connect=facts.rpc or "")


def _render_cached(request: Request, name: str, mark: str, make: Callable[[], str]) -> str:
    """Returns the part `name`, rendered anew where its `mark` changed. Raises 503 while too much is rendered."""
    rendered: Recent[str] = request.app.state.rendered
    return rendered.get(name, mark, VIEWERS, make)


def list_known_ids(reader: RowReader, named: Sequence[str]) -> list[str]:
    """Returns those of the ids that are a job's, in their order."""
    known = set(reader.session.scalars(select(Job.id).where(Job.id.in_(named)))) if named else set()
    return [job_id for job_id in named if job_id in known]


PAGES_SHARE: Final = 8.0
"""Of this many seconds one may go into rendering pages."""


class PagesFeature(Feature):
    name = "pages"
    needs = (
        *("answer_cache", "audits", "coverage", "described_api", "event_streams", "explanations", "health", "metrics"),
        *("price_guide", "records", "reputation"),
    )
    routers = (router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.rendered = Recent[str](Share(pause=PAGES_SHARE))
        state.pays = Recent[str](Share())
        state.live = LiveParts(context)
