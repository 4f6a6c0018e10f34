"""Planted tasks: an idle auditor computes tasks before anybody answers them; public figures report the comparison."""

from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Request
from starlette.datastructures import State

from gradmarket.market.views.trust_views import TrustView
from gradmarket.market.wire.audit_messages import AuditAnswer, AuditReceipt
from requester.api.auth_routes import SAME_RELEASE, Auditor, Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.problems import describe_problems
from requester.context import Context
from requester.features.answer_cache import Recent, Source
from requester.features.audits.audit_kind import AuditingFeature
from requester.features.audits.audit_routes import TaskPath
from requester.features.planted import planting, trust_figures
from requester.features.planted.planted_rows import PlantedAnswer
from requester.features.planted.planting import PlantingAudits
from requester.store import jobs
from requester.store.locks import retry_on_conflict
from requester.store.tables import Job
from requester.store.work import RowReader

router = APIRouter(prefix="/v1", tags=["audits"])


@router.get(
    "/jobs/{job_id}/trust",
    operation_id="get_trust",
    responses=NO_JOB,
    summary="How well the job's checks find wrong answers",
)
def get_trust(context: Here, request: Request, source: Source, job_id: JobPath) -> TrustView:
    """For strangers cached while the job is in one state, as their share of the service's time has it."""
    kept: Recent[TrustView] = request.app.state.trust
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        return kept.get(job_id, job.state, source, partial(trust_figures.load_trust, reader, job))


@router.put(
    "/audits/{task_id}/planted",
    operation_id="plant_answer",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="The payload root that an auditor found before anybody answered",
)
@retry_on_conflict
def plant_answer(context: Here, _identity: Auditor, task_id: TaskPath, answer: AuditAnswer) -> AuditReceipt:
    planting.record_planted_answer(context, task_id, answer)
    return AuditReceipt(again=False)


class PlantedFeature(AuditingFeature):
    name = "planted"
    needs = ("answer_cache", "audits")
    routers = (router,)
    audit_kind = PlantingAudits()
    claimed_tables = (PlantedAnswer,)

    def open_caches(self, state: State, context: Context) -> None:
        state.trust = Recent[TrustView](state.strangers_share)

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        trust = trust_figures.load_trust(reader, job) if jobs.load_spec(job).audited else None
        return {"trust": trust if trust and (trust.share or trust.panels) else None}
