"""Vesting: a failed audit accuses those that answered wrongly, and validators may burn the last of their pay."""

from collections.abc import Mapping, Sequence

from contracts.calls import vested_case_id
from gradmarket.market.terms import AccusationState, Amount
from gradmarket.market.views.payment_views import VestView
from requester.features.audits.audit_kind import AuditingFeature, AuditKind
from requester.features.audits.audit_tables import Audit
from requester.features.stakes import accusations
from requester.features.vesting.vest_accusing import RULED_ON, advance_vest_accusations
from requester.store import jobs
from requester.store.tables import Job, Replica, Task
from requester.store.work import RowReader, Work


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

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        spec, unit = jobs.load_spec(job), Amount(int(job.unit))
        if (vesting := spec.vesting) is None:
            return {}
        made = accusations.of_job(reader, job.id)
        sums = {
            name: str(sum(int(row.amount) for row in made if row.state == state))
            for name, state in (("accused", RULED_ON), ("burnt", AccusationState.SLASHED))
        }
        locked = str(vesting.compute_units(spec.price.most, unit) * unit)
        failed = sum(row.state == AccusationState.ACQUITTED for row in made)
        return {"vest": VestView(locked=locked, window_s=vesting.window_s, failed=failed, **sums)}
