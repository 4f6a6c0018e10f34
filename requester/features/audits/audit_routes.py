"""Routes for auditors, which claim a task to run again and send their answer; the results of audits are public."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from gradmarket.market.fields import ID
from gradmarket.market.terms import JobId, TaskId
from gradmarket.market.views.service_views import Page
from gradmarket.market.views.trust_views import AuditView
from gradmarket.market.wire.audit_messages import (
    AuditAnswer,
    AuditAssignment,
    AuditReceipt,
    AuditRequest,
    AuditWork,
)
from gradmarket.market.wire.poll import OfferFields
from requester.api.auth_routes import SAME_RELEASE, Auditor, Here
from requester.api.blob_routes import UPLOAD
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.paging import CostlyLimit, Cursor, load_list_page
from requester.api.problems import describe_problems
from requester.api.resumable_uploads import UploadOffset, receive_upload
from requester.exchange.payload_upload import build_incoming_upload
from requester.features.audits import audit_rows, auditor_claims, auditor_payloads
from requester.features.audits.audit_kind import Asker, list_auditing_features
from requester.features.audits.audit_tables import Audit
from requester.features.audits.audit_views import view_audit
from requester.store import disclosure, identities
from requester.store.locks import retry_on_conflict

router = APIRouter(prefix="/v1", tags=["audits"])

TaskPath = Annotated[str, Path(pattern=ID)]


@router.post(
    "/audits/claim",
    operation_id="claim_audit",
    responses=SAME_RELEASE,
    summary="The next task to run again, for machines of this class",
)
@retry_on_conflict
def claim(context: Here, identity: Auditor, asked: AuditRequest) -> AuditAssignment:
    asker = Asker(asked.auditor, identities.operator_of(identity.subject), asked.determinism_class)
    if asked.holds is not None:
        auditor_claims.renew_held_audit(context, asker, asked.holds)
        return AuditAssignment(work=None)
    claimed = auditor_claims.claim_next_audit(context, asker)
    if claimed is None:
        return AuditAssignment(work=None)
    offer = OfferFields.of(claimed.offer)
    work = AuditWork(
        task=TaskId(claimed.task),
        job=JobId(claimed.job),
        offer=offer,
        run=claimed.run,
        seconds=claimed.seconds,
        wave_seed=claimed.wave_seed,
        calibrates=claimed.calibrates,
        planted=claimed.planted,
        brings=claimed.brings,
        score=claimed.score,
        window=claimed.window,
        panel=claimed.panel,
    )
    return AuditAssignment(work=work)


@router.put(
    "/audits/{task_id}",
    operation_id="answer_audit",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="The payload root that the auditor found, not knowing which one was accepted",
)
@retry_on_conflict
def answer(context: Here, _identity: Auditor, task_id: TaskPath, audit_answer: AuditAnswer) -> AuditReceipt:
    return AuditReceipt(again=auditor_claims.record_audit_answer(context, task_id, audit_answer))


@router.put(
    "/audits/payloads/{task_id}",
    operation_id="bring_audited_payload",
    status_code=204,
    response_class=Response,
    responses={**SAME_RELEASE, **describe_problems(404, 409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="The auditor's own gradient, where it found none of the task's answers",
)
async def bring(
    context: Here, auditor: Auditor, request: Request, task_id: TaskPath, offset: UploadOffset = None
) -> Response:
    want = await run_in_threadpool(auditor_payloads.find_auditors_grant, context, task_id)
    refusal = f"this payload has {want.length} bytes"
    async with receive_upload(context, request, auditor.subject, want.root, offset, want.length, refusal) as incoming:
        arrival = build_incoming_upload(want, incoming)
        await run_in_threadpool(auditor_payloads.accept_delivery, context, want, arrival)
    return Response(status_code=204)


@router.get(
    "/jobs/{job_id}/audits", operation_id="list_audits", responses=NO_JOB, summary="The job's audits that are over"
)
def audits(context: Here, job_id: JobPath, limit: CostlyLimit, cursor: Cursor = None) -> Page[AuditView]:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        disclosed = disclosure.of_job(reader, job)
        rows = audit_rows.select_ended_audits(job.id)

        def line(row: Audit) -> AuditView:
            more: dict[str, object] = {}
            for feature in list_auditing_features(reader):
                more |= feature.describe_audit(reader, row)
            return view_audit(row, disclosed.is_round_final(row.round), more=more)

        return load_list_page(reader, rows, [Audit.task_id], line, cursor, limit)
