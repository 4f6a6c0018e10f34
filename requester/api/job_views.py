"""Views of a job, its rounds and its counts, and the formats of all views.

Amounts are decimal strings in smallest units, times are ISO 8601 in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import sketch_packing
from gradmarket.market.rules.lifecycle import choose_mending_command
from gradmarket.market.terms import Amount, JobState, ReplicaState
from gradmarket.market.views.job_views import Costs, FaultView, JobView, RoundView
from requester.feature import features_of
from requester.store import jobs, progress, tasks
from requester.store.answer_kind import explanation_of
from requester.store.listings import unpack_tags
from requester.store.review import review_of
from requester.store.tables import Job, Round
from requester.store.work import RowReader


def format_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def format_hex(value: bytes | None) -> str | None:
    return None if value is None else "0x" + value.hex()


def sketch_view(sketch: Sketch | None) -> dict[str, str] | None:
    """Returns each tensor's 64 float32, little-endian, in hexadecimal; None without a sketch."""
    if sketch is None:
        return None
    return {name: f"0x{data.hex()}" for name, data in sketch_packing.encode_sketch(sketch).items()}


def format_amount(units: int, unit: str) -> str:
    return str(units * int(unit))


@dataclass(frozen=True, slots=True)
class Standing:
    """The counts over all rows of a job; `reason` as store.answer_kind.

    parts: fields of its JobView from features.
    """

    earned: int
    replicas: Mapping[str, int]
    reason: str
    parts: Mapping[str, Any]
    remedy: str = ""
    """The one command that ends a pause."""
    checks: str = ""
    """As store.answer_kind."""


def read_standing(reader: RowReader, job: Job, now: float) -> Standing:
    explained = explanation_of(reader)
    reason = explained.explain_wait(reader, job, now)
    parts = {name: part for feature in features_of(reader) for name, part in feature.describe_job(reader, job).items()}
    return Standing(
        jobs.sum_earned_units(reader, job.id),
        progress.count_replicas_by_state(reader, job.id),
        reason,
        parts,
        choose_remedy(reader, job) if job.state == JobState.PAUSED else "",
        explained.describe_checks(reader, job, now),
    )


def choose_remedy(reader: RowReader, job: Job) -> str:
    """Returns the one command that ends the job's pause."""
    spec, diverged = jobs.load_spec(job), [task.id for task in tasks.list_diverged_tasks(reader, job.id)]
    unit = int(job.unit)
    round_costs = spec.most_expensive // spec.rounds // unit * unit
    missing = Amount(max(spec.most_expensive - job.deposited * unit, round_costs))
    audited_now = review_of(reader).is_under_way(reader, diverged)
    return choose_mending_command(job.id, job.reason, job.fault is not None, audited_now, missing)


def job_view(job: Job, spec: JobSpec, newest: Round | None, standing: Standing) -> JobView:
    flops, peak_bytes = jobs.find_task_costs(job) or (None, None)
    publication = jobs.find_publication(job)
    states, earned, reason = standing.replicas, standing.earned, standing.reason
    paid = states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0)
    return JobView(
        id=job.id,
        name=spec.name,
        state=job.state,
        reason=reason,
        remedy=standing.remedy,
        fault=FaultView.model_validate(job.fault) if job.fault else None,
        notice=spec.notice,
        tags=unpack_tags(job.tags),
        note=job.note,
        spec=spec,
        publication=publication,
        spec_digest=job.spec_digest,
        chain_job=job.chain_job,
        unit=job.unit,
        costs=Costs(
            price=format_amount(job.price, job.unit),
            at_most=str(spec.most_expensive),
            budget=format_amount(job.budget, job.unit),
            deposited=format_amount(job.deposited, job.unit),
            earned=format_amount(earned, job.unit),
            refunded=format_amount(job.refunded, job.unit),
        ),
        round=newest.number if newest else None,
        rounds=spec.rounds,
        accepted=paid,
        rejected=states.get(ReplicaState.REJECTED, 0),
        loss=newest.loss if newest else None,
        metrics=newest.metrics if newest else None,
        parameters=newest.updated if newest else publication and publication.parameters,
        best_round=job.best_round,
        determinism_class=job.determinism_class,
        checks=standing.checks,
        class_proven=job.proven_class is not None and job.proven_class == job.determinism_class,
        task_flops=flops,
        task_peak_bytes=peak_bytes,
        expiry=format_time(job.expiry),
        claim_until=format_time(job.claim_until),
        created_at=format_time(job.created_at),
        ended_at=format_time(job.ended_at),
        **standing.parts,
    )


def round_view(reader: RowReader, row: Round, unit: str) -> RoundView:
    parts = {name: value for feature in features_of(reader) for name, value in feature.describe_round(row).items()}
    return RoundView(
        number=row.number,
        state=row.state,
        price=format_amount(row.price, unit),
        parameters=row.parameters,
        updated=row.updated,
        optimizer_state=row.optimizer_state or None,
        loss=row.loss,
        metrics=row.metrics,
        opened_at=format_time(row.opened_at),
        closed_at=format_time(row.closed_at),
        **parts,
    )
