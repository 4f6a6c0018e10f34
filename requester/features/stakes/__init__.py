"""Stakes: a failed audit accuses those that answered wrongly, and the case is taken to the chain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts import calls, stakes
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import payment
from gradmarket.market.stakes import Stakes, Vesting
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.market.views.trust_views import AccusationView
from requester.api.job_views import format_hex, format_time
from requester.chain.chain_context import ChainContext
from requester.context import Context
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

    def check_amounts(self, context: Context, spec: JobSpec, unit: Amount) -> None:
        check_court(context, "stake", spec.stake, unit)

    def extend_opening(self, opening: calls.OpenJob, job: Job, min_window: int) -> calls.OpenJob:
        terms = jobs.load_spec(job).stake
        if terms is None:
            return opening
        return replace(
            opening,
            slash_window=terms.slash_s,
            contest_window=max(terms.contest_s, min_window),
            decision_window=max(terms.decide_s, min_window),
            bond=terms.bond // opening.unit,
        )

    def measure_stake(self, chain: ChainContext, job: Job, worker: Address) -> Units:
        terms = jobs.load_spec(job).stake
        if terms is None:
            return Units(0)
        exposed = stakes.exposure(chain.ledger, job.chain_job or 0, worker)
        # nothing if the worker has left or named validators unlike the job's
        quorum = compute_quorum_hash(terms)
        unit = Amount(int(job.unit))
        if exposed.locked_until or exposed.quorum != quorum:
            return Units(0)
        return Units(min(payment.MAX_UNITS, (exposed.at_risk - exposed.accused) // unit))

    def describe_audit(self, reader: RowReader, row: Audit) -> Mapping[str, object]:
        return {"accusations": [build_accusation_view(one) for one in accusations.of_task(reader, row.task_id)]}


def check_court(context: Context, field: str, terms: Stakes | Vesting | None, unit: Amount) -> None:
    """Raises JobRefused for a bond that is no number of units, and where another key owns the service's jobs."""
    if terms is not None:
        payment.in_units(f"{field}.bond", terms.bond, unit)
        if context.settings.owner is not None:
            raise JobRefused(field, "only a job's owner can accuse, and another key owns this service's jobs")


def compute_quorum_hash(terms: Stakes | Vesting) -> Hash:
    """Returns the hash of the validators that a worker must have named on joining for its stake to count."""
    return calls.quorum_of(terms.validators, terms.threshold)


def build_accusation_view(row: Accusation) -> AccusationView:
    return AccusationView(
        worker=row.worker,
        state=row.state,
        case=format_hex(row.case),
        event=format_hex(row.event),
        amount=row.amount,
        until=format_time(row.until),
    )
