"""Panels of auditors: auditors of separate operators compute an audited task, and a set number of them must agree."""

from collections.abc import Mapping

from fastapi import APIRouter

from gradmarket.market.terms import AUDIT_UNDER_WAY
from gradmarket.market.views.trust_views import PanelFigures, PanelSeatView
from gradmarket.market.wire.audit_messages import AuditReceipt, PanelOpening, PanelSeal
from requester.api.auth_routes import SAME_RELEASE, Auditor, Here
from requester.api.problems import describe_problems
from requester.features.auditors import panel_exchange, panel_rows
from requester.features.auditors.auditors_heard import AuditorsHeard
from requester.features.auditors.panel_exchange import PanelAudits
from requester.features.auditors.panel_rows import PanelSeat
from requester.features.audits.audit_kind import AuditingFeature
from requester.features.audits.audit_routes import TaskPath
from requester.features.audits.audit_tables import Audit
from requester.store import disclosure, identities, jobs
from requester.store.locks import retry_on_conflict
from requester.store.tables import Job
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1", tags=["audits"])


@router.put(
    "/audits/{task_id}/seal",
    operation_id="seal_audit",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="The signed seal of what an auditor of a panel found",
)
@retry_on_conflict
def seal_audit(context: Here, identity: Auditor, task_id: TaskPath, seal: PanelSeal) -> AuditReceipt:
    panel_exchange.record_seal(context, task_id, identities.operator_of(identity.subject), seal)
    return AuditReceipt(again=False)


@router.put(
    "/audits/{task_id}/opening",
    operation_id="open_audit",
    responses={**SAME_RELEASE, **describe_problems(404, 409)},
    summary="What opens an auditor's seal, once all of its panel have sealed their answers",
)
@retry_on_conflict
def open_audit(context: Here, identity: Auditor, task_id: TaskPath, opening: PanelOpening) -> AuditReceipt:
    panel_exchange.record_opening(context, task_id, identities.operator_of(identity.subject), opening)
    return AuditReceipt(again=False)


class AuditorsFeature(AuditingFeature):
    name = "auditors"
    needs = ("audits", "log")
    stages = (panel_exchange,)
    routers = (router,)
    audit_kind = PanelAudits()
    hearing_party = AuditorsHeard()
    claimed_tables = (PanelSeat,)
    log_records = (panel_rows.SEALS,)

    def bound_times(self, work: Work, now: float) -> int:
        return panel_rows.bound_times(work, now)

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        job = reader.get_one(Job, row.job_id)
        if jobs.load_spec(job).panel is None or row.state in AUDIT_UNDER_WAY:
            return {}
        final = disclosure.of_job(reader, job).is_round_final(row.round)
        seats = [
            PanelSeatView(
                signer=seat.signer,
                sealed=None if seat.sealed is None else "0x" + seat.sealed.hex(),
                signature=None if seat.signature is None else "0x" + seat.signature.hex(),
                run=seat.run,
                state=seat.state,
                root=seat.root if final else None,
                salt=None if seat.salt is None or not final else "0x" + seat.salt.hex(),
            )
            for seat in panel_rows.list_all_seats(reader, row.task_id)
        ]
        return {"panel": seats}

    def describe_trust(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        panel = jobs.load_spec(job).panel
        if panel is None:
            return {}
        decided, disagreed, wrong, withheld, barred = panel_rows.count_panels(reader, job)
        counts = {"decided": decided, "disagreed": disagreed, "wrong": wrong, "withheld": withheld, "barred": barred}
        return {"panels": PanelFigures(auditors=panel.count, agree=panel.agree, **counts)}
