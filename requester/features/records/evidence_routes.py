"""Routes for a job's history: its checkpoints, its tasks with the evidence of their verdicts, and its workers."""

from fastapi import APIRouter

from gradmarket.market.errors import NotFound
from gradmarket.market.features.records import TaskEvidence, TaskView
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Digest
from gradmarket.market.views.job_views import CheckpointView
from gradmarket.market.views.payment_views import JobWorkerView, VerdictView
from gradmarket.market.views.service_views import Page
from requester.api.auth_routes import Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404, unit_of
from requester.api.paging import CostlyLimit, Cursor, Limit, load_list_page, load_page_rows
from requester.feature import features_of
from requester.features.records import record_lists
from requester.features.records.job_counts import count_replicas_of
from requester.features.records.record_views import job_worker_view
from requester.features.records.task_views import build_task_evidence, task_view, verdict_view
from requester.store import ballots, disclosure, jobs
from requester.store.review import review_of
from requester.store.tables import Account, Job, Replica, Round, Task
from requester.store.work import RowReader

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get(
    "/{job_id}/checkpoints",
    operation_id="list_checkpoints",
    responses=NO_JOB,
    summary="The parameters after each merged round",
)
def checkpoints(context: Here, job_id: JobPath, limit: CostlyLimit, cursor: Cursor = None) -> Page[CheckpointView]:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)

        def line(row: Round) -> CheckpointView:
            digest = Digest(row.updated or "")
            fields = {"loss": row.loss, "metrics": row.metrics, "best": row.number == job.best_round}
            return CheckpointView(round=row.number, parameters=digest, stored=context.blobs.has(digest), **fields)

        return load_list_page(reader, record_lists.select_closed_rounds(job_id), [Round.number], line, cursor, limit)


@router.get("/{job_id}/tasks", operation_id="list_tasks", responses=NO_JOB)
def tasks(context: Here, job_id: JobPath, limit: Limit, cursor: Cursor = None) -> Page[TaskView]:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        rows, disclosed = record_lists.select_tasks(job.id), disclosure.of_job(reader, job)

        def line(row: Task) -> TaskView:
            return task_view(row, disclosed.of(row))

        return load_list_page(reader, rows, [Task.round, Task.index, Task.attempt], line, cursor, limit)


@router.get(
    "/{job_id}/tasks/{task_id}", operation_id="get_task", responses=NO_JOB, summary="All that a verdict rests on"
)
def task(context: Here, job_id: JobPath, task_id: JobPath) -> TaskEvidence:
    with context.reading() as reader:
        row = reader.get(Task, task_id)
        if row is None or row.job_id != job_id:
            raise NotFound(f"no task {task_id[:80]} in job {job_id[:80]}")
        return evidence_of(reader, row)


def evidence_of(reader: RowReader, row: Task) -> TaskEvidence:
    waves, replicas = record_lists.waves_of(reader, row.id), record_lists.replicas_by_id(reader, row.id)
    job = reader.get_one(Job, row.job_id)
    link = secrets.of_task(row.secret, jobs.load_spec(job).replication.max_replicas)[-1]
    published = disclosure.of_job(reader, job).of(row)
    sketches = {} if row.allowed is None else ballots.sketches_of(reader, row)
    audit = review_of(reader).view_audit(reader, row, published)
    shown = build_task_evidence(row, list(waves), list(replicas), published, link, audit, sketches)
    more: dict[str, object] = {}
    for feature in features_of(reader) if published else ():
        more |= feature.describe_task(reader, row)
    return shown.model_copy(update=more)


@router.get("/{job_id}/verdicts", operation_id="list_verdicts", responses=NO_JOB)
def verdicts(context: Here, job_id: JobPath, limit: Limit, cursor: Cursor = None) -> Page[VerdictView]:
    with context.reading() as reader:
        unit_of(reader, job_id)
        shown, more = load_page_rows(reader, record_lists.select_verdicts(job_id), [Replica.id], cursor, limit)
        return Page(items=list(map(verdict_view, shown)), next=more)


@router.get("/{job_id}/workers", operation_id="list_job_workers", responses=NO_JOB)
def workers(context: Here, job_id: JobPath, limit: CostlyLimit, cursor: Cursor = None) -> Page[JobWorkerView]:
    with context.reading() as reader:
        unit = unit_of(reader, job_id)
        shown, more = load_page_rows(reader, record_lists.select_workers(job_id), [Account.worker], cursor, limit)
        states = count_replicas_of(reader, job_id, [row.worker for row in shown])
        return Page(items=[job_worker_view(row, unit, states[row.worker]) for row in shown], next=more)
