"""Vesting: a failed audit accuses those that answered wrongly, and validators may burn the last of their pay."""

from collections.abc import Sequence

from contracts.calls import vested_case_id
from requester.features.audits.audit_kind import AuditingFeature, AuditKind
from requester.features.stakes import accusations
from requester.features.vesting.vest_accusing import advance_vest_accusations
from requester.store import jobs
from requester.store.tables import Audit, Job, Replica, Task
from requester.store.work import Work


class BurningAudits(AuditKind):
    def accuse_workers(
        self, work: Work, job: Job, task: Task, audit: Audit, wrong: Sequence[Replica], now: float
    ) -> None:
        if jobs.load_spec(job).vesting is not None:
            accusations.create_accusations(work, job, task, wrong, audit.root or "", now, vested_case_id)


class VestingFeature(AuditingFeature):
    name = "vesting"
    needs = ("audits", "stakes")
    audit_kind = BurningAudits()
    chain_steps = (advance_vest_accusations,)
