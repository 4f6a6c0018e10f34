"""The routes by which the auditors of a panel seal and open their answers."""

from fastapi import APIRouter

from gradmarket.market.wire.audit_messages import AuditReceipt
from gradmarket.market.wire.panel_messages import PanelOpening, PanelSeal
from requester.api.auth_routes import SAME_RELEASE, Auditor
from requester.api.problems import describe_problems
from requester.api.state import Here
from requester.features.auditors import panel_exchange
from requester.features.audits.audit_routes import TaskPath
from requester.store import tokens
from requester.store.retries import retry_on_conflict

router = APIRouter(prefix="/v1", tags=["audits"])


@router.put(
    "/audits/{task_id}/seal",
    operation_id="seal_audit",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="The signed seal of what an auditor of a panel found",
)
@retry_on_conflict
def seal_audit(context: Here, identity: Auditor, task_id: TaskPath, said: PanelSeal) -> AuditReceipt:
    panel_exchange.record_seal(context, task_id, tokens.operator_of(identity.subject), said)
    return AuditReceipt(again=False)


@router.put(
    "/audits/{task_id}/opening",
    operation_id="open_audit",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="What opens an auditor's seal, once all of its panel have sealed their answers",
)
@retry_on_conflict
def open_audit(context: Here, identity: Auditor, task_id: TaskPath, said: PanelOpening) -> AuditReceipt:
    panel_exchange.record_opening(context, task_id, tokens.operator_of(identity.subject), said)
    return AuditReceipt(again=False)
