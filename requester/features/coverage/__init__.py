"""The books of coverage: how often a job's updates used the rows of its data; market.features.coverage has the rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastapi import APIRouter, HTTPException, Request
from starlette.datastructures import State

from gradmarket.market.errors import NotFound
from gradmarket.market.features import coverage as rules
from gradmarket.market.features.coverage import CoverageView, PartitionCoverage
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.terms import Digest
from gradmarket.market.views.job_views import CoverageCounts
from requester.api.auth_routes import ROLE, AnyoneOrNobody, Here, Identity
from requester.api.job_routes import NO_JOB, JobPath, check_visible, job_or_404
from requester.api.paging import NOT_OURS, Cursor, Limit, decode_cursor, encode_cursor
from requester.context import Context
from requester.feature import Feature
from requester.features.answer_cache import Recent, Source
from requester.features.coverage import coverage_rows
from requester.features.coverage.coverage_rows import Covered
from requester.store import jobs
from requester.store.remembered import Remembered
from requester.store.tables import Job
from requester.store.work import RowReader

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@dataclass(frozen=True, slots=True)
class Books:
    """The training partitions' names, rows, merged tasks and uses, in order, and the counts over all of them."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    tasks: dict[int, int]
    uses: list[float]
    counts: CoverageCounts | None
    epochs: int | None


Partitions = tuple[tuple[str, ...], tuple[int, ...]]
_PARTITIONS: Final = Remembered[Partitions](most=16)


@router.get(
    "/{job_id}/coverage",
    operation_id="get_coverage",
    responses={**ROLE, **NO_JOB},
    summary="How often each partition's rows were used",
)
def get_coverage(
    context: Here,
    request: Request,
    who: AnyoneOrNobody,
    source: Source,
    job_id: JobPath,
    limit: Limit,
    cursor: Cursor = None,
) -> CoverageView:
    books = read_books(context, request, who, source, job_id)
    first = 0
    if cursor is not None:
        (last,) = decode_cursor(cursor, 1)
        if not isinstance(last, int) or last < 0:
            raise HTTPException(422, NOT_OURS)
        first = last + 1
    shown = range(len(books.names))[first:][:limit]
    items = [
        PartitionCoverage(name=books.names[n], rows=books.rows[n], tasks=books.tasks.get(n, 0), uses=books.uses[n])
        for n in shown
    ]
    more = encode_cursor([shown[-1]]) if shown and shown[-1] + 1 < len(books.names) else None
    worst = rules.worst_share(books.uses)
    return CoverageView(items=items, next=more, counts=books.counts, epochs=books.epochs, worst_share=worst)


def read_books(context: Context, request: Request, who: Identity | None, source: str | None, job_id: str) -> Books:
    """Returns the job's books, cached while it is in one state and round.

    Raises NotFound before the job is published, 401 or 403 for a caller that may not read the job's training data.
    """
    kept: Recent[Books] = request.app.state.coverage
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        check_visible(job, who)
        newest = jobs.latest_closed(reader, job_id)
        mark = f"{job.state} {newest.number if newest else -1}"
        return kept.get(job_id, mark, source, partial(_count_books, context, reader, job))


def counts_view(covered: Covered | None) -> CoverageCounts | None:
    if covered is None:
        return None
    return CoverageCounts(used=covered.used, late=covered.late, waiting=covered.waiting)


def _count_books(context: Context, reader: RowReader, job: Job) -> Books:
    """Raises NotFound where the job is not published yet."""
    publication = jobs.find_publication(job)
    if publication is None:
        raise NotFound(f"job {job.id} is not published yet: ask again once it runs")
    spec, manifest = publication.spec, publication.manifest
    known = _PARTITIONS.peek(manifest)
    if known is None:
        partitions = list_training_partitions(parse_manifest(context.blobs.read(Digest(manifest))), spec)
        known = tuple(one.name for one in partitions), tuple(one.rows for one in partitions)
        _PARTITIONS.remember(manifest, known)
    names, rows = known
    taken, covered = coverage_rows.count_by_partition(reader, job, len(names)), coverage_rows.count_covered(reader, job)
    per_task = spec.step.rows * spec.step.moves
    epochs = None if covered is None else rules.count_full_epochs(rows, covered.whole, per_task)
    return Books(names, rows, taken, rules.compute_partition_uses(rows, taken, per_task), counts_view(covered), epochs)


class CoverageFeature(Feature):
    name = "coverage"
    needs = ("answer_cache",)
    routers = (router,)

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        return {"coverage": counts_view(coverage_rows.count_covered(reader, job))}

    def open_caches(self, state: State, context: Context) -> None:
        state.coverage = Recent[Books](state.strangers_share)
