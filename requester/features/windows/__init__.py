"""Audits that repeat two windows of a task, from states that its worker brings, by market.features.windows."""

from fastapi import APIRouter, Request
from sqlalchemy import ColumnElement, exists
from starlette.concurrency import run_in_threadpool

from gradmarket.market.features.windows import StateReceipt, StatesAsked
from gradmarket.market.terms import Digest
from requester.api.auth_routes import SAME_RELEASE, Here, Worker
from requester.api.blob_routes import UPLOAD, DigestPath
from requester.api.problems import describe_problems
from requester.api.resumable_uploads import UploadOffset, receive_upload
from requester.features.audits.audit_kind import AuditingFeature
from requester.features.windows import state_upload, window_states
from requester.features.windows.window_draws import STATE, WindowAudits, needs_state
from requester.features.windows.window_states import WindowState
from requester.store.work import Work

router = APIRouter(prefix="/v1/work/states", tags=["work"])


@router.get(
    "",
    operation_id="list_asked_states",
    responses=SAME_RELEASE,
    summary="The states that audits of your answers start from",
)
def asked(context: Here, worker: Worker) -> StatesAsked:
    return state_upload.list_asked_states(context, worker)


@router.put(
    "/{digest}",
    operation_id="put_state",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Bring a state that an audit asks for",
)
async def bring(
    context: Here, worker: Worker, request: Request, digest: DigestPath, offset: UploadOffset = None
) -> StateReceipt:
    want = await run_in_threadpool(state_upload.load_wanted_state, context, worker, Digest(digest))
    most = await run_in_threadpool(lambda: want.most_bytes)
    refusal = f"this state has at most {most} bytes"
    reading = request.app.state.readers.reading(f"{worker} {digest}")
    async with receive_upload(context, request, worker, digest, offset, most, refusal, reading) as incoming:
        await run_in_threadpool(state_upload.store_state, context, want, incoming)
    return StateReceipt(digest=want.digest)


class WindowsFeature(AuditingFeature):
    name = "windows"
    needs = ("audits",)
    routers = (router,)
    audit_kind = WindowAudits()
    blob_kinds = {STATE: needs_state}

    def bound_times(self, work: Work, now: float) -> int:
        return window_states.bound_times(work, now)

    def hide_blob(self, digest: ColumnElement[str]) -> ColumnElement[bool]:
        return exists().where(WindowState.digest == digest, WindowState.brought.is_(True))
