"""Vesting: a failed audit accuses those that answered wrongly, and validators may burn the last of their pay."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts.calls import OpenJob, vested_case_id
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import AccusationState, Amount
from gradmarket.market.views.payment_views import VestView
from requester.context import Context
from requester.features.audits.audit_kind import AuditingFeature, AuditKind
from requester.features.audits.audit_tables import Audit
from requester.features.stakes import accusations, check_court, compute_quorum_hash
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

    def check_amounts(self, context: Context, spec: JobSpec, unit: Amount) -> None:
        check_court(context, "vesting", spec.vesting, unit)

    def extend_opening(self, opening: OpenJob, job: Job, min_window: int) -> OpenJob:
        spec = jobs.load_spec(job)
        if (vesting := spec.vesting) is None:
            return opening
        return replace(
            opening,
            decision_window=max(vesting.decide_s, min_window),
            bond=vesting.bond // opening.unit,
            vest=vesting.compute_units(spec.price.most, opening.unit),
            vest_window=vesting.window_s,
            vest_quorum=compute_quorum_hash(vesting),
        )

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
