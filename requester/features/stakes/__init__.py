"""Stakes: a failed audit accuses those that answered wrongly, and the case is taken to the chain."""

from collections.abc import Mapping, Sequence

from gradmarket.market.views.trust_views import AccusationView
from requester.api.job_views import format_hex, format_time
from requester.features.audits.audit_kind import AuditingFeature, AuditKind
from requester.features.audits.audit_tables import Audit
from requester.features.stakes import accusations
from requester.features.stakes.accusations import Accusation
from requester.features.stakes.accusing import advance_accusations
from requester.store import jobs
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work


class AccusingAudits(AuditKind):
    def accuse_workers(
        self, work: Work, job: Job, task: Task, audit: Audit, wrong: Sequence[Replica], now: float
    ) -> None:
        if jobs.load_spec(job).stake is not None:
            accusations.create_accusations(work, job, task, wrong, audit.root or "", now)


class StakesFeature(AuditingFeature):
    name = "stakes"
    needs = ("audits",)
    audit_kind = AccusingAudits()
    chain_steps = (advance_accusations,)

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        return {"accusations": [build_accusation_view(one) for one in accusations.of_task(reader, row.task_id)]}


def build_accusation_view(row: Accusation) -> AccusationView:
    return AccusationView(
        worker=row.worker,
        state=row.state,
        case=format_hex(row.case),
        event=format_hex(row.event),
        amount=row.amount,
        until=format_time(row.until),
    )
