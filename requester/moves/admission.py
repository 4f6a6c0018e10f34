"""Checks of a posted job that need no computation."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gradmarket.market import admissible
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Continued, ReadyData, ReadyModel
from gradmarket.market.manifest import Manifest
from gradmarket.market.rules import payment
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Amount, Units
from requester import dataset
from requester.context import Context
from requester.feature import beginning_of, features_of
from requester.moves import named_blobs
from requester.store.tables import Job
from requester.store.work import Work


@dataclass(frozen=True)
class Admitted:
    """A job's amounts, converted to units."""

    unit: Amount
    most: Units
    """The highest price of a gradient."""
    budget: Units


def admit_job(context: Context, spec: JobSpec, token: str) -> Admitted:
    """Checks all that needs no computation, and converts the job's amounts. Raises JobRefused naming the field."""
    admissible.check_job_spec(spec)
    beginning_of(context).check_posted(context, spec, token)
    check_features_serve(spec, {feature.name for feature in features_of(context)})
    named_blobs.check_spec(context, spec, token)
    if (manifest := find_manifest(context, spec)) is not None:
        named_blobs.check_partitions(context, spec, manifest, token)
        dataset.check_rows_of_a_task(manifest, spec)
    unit = Amount(int(context.chain_facts.unit))
    for field, amount in spec.price.prices.items():
        payment.in_units(field, amount, unit, payment.MAX_PRICE)
    for feature in features_of(context):
        feature.check_amounts(context, spec, unit)
    most = payment.in_units("price", spec.price.most, unit, payment.MAX_PRICE)
    return Admitted(unit, most, payment.in_units("budget", spec.deposit, unit))


def find_manifest(context: Context, spec: JobSpec) -> Manifest | None:
    """Returns the manifest of the job's data; None where they come with the service, but not to this process.

    Raises JobRefused.
    """
    if not isinstance(spec.data, ReadyData):
        return dataset.manifest_of(context.blobs, spec.data, context.public_url)
    return next(filter(None, (feature.find_manifest(spec) for feature in features_of(context))), None)


def check_features_serve(spec: JobSpec, features: Collection[str]) -> None:
    """Refuses a field served only by a feature that this service is built without."""
    windowed = isinstance(spec.step, LocalStep) and spec.step.window is not None
    ready = isinstance(spec.model, ReadyModel), isinstance(spec.data, ReadyData)
    needs = {
        "ready_jobs": ("model" if ready[0] else "data", any(ready)),
        "audits": ("audit" if spec.audit is not None else "replication", spec.audited),
        "proven": ("replication", spec.proof is not None),
        "adaptive": ("replication", spec.gain is not None),
        "continuing": ("continue_from", spec.continue_from is not None),
        "evaluations": ("evaluation", spec.evaluation is not None),
        "windows": ("step.window", windowed),
        "loss_change": ("verifier", spec.verifier.scored),
        "tolerance": ("verifier", spec.verifier.sketched),
        "late": ("min_tasks", spec.leaves_tasks),
        "private": ("data.holders", spec.private is not None),
        "secure_sums": ("data.secure_aggregation", spec.secure is not None),
        "stakes": ("stake", spec.stake is not None),
        "vesting": ("vesting", spec.vesting is not None),
        "claims": ("audit.claims", spec.audit is not None and spec.audit.claims > 0),
        "auditors": ("audit.auditors", spec.panel is not None),
        "planted": ("audit.planted", spec.audit is not None and spec.audit.planted > 0.0),
    }
    for name, (field, needed) in needs.items():
        if needed and name not in features:
            raise JobRefused(field, f"this service is built without {name}: leave it out")


def lay_out(context: Context, work: Work, job: Job, token: str, budget: Units) -> None:
    """Asks every feature whether the token may spend `budget` on the job. Raises JobRefused where it may not."""
    for feature in features_of(work):
        feature.budget_raised(context, work, job, token, Amount(budget * int(job.unit)))


def complete_spec(spec: JobSpec, seed: int) -> JobSpec:
    """Returns the job with the fields that its requester left open: seed and local steps' re-warm; without labels."""
    step = spec.step
    drawn: dict[str, Any] = {"tags": (), "note": ""}
    if "seed" not in spec.model_fields_set:
        drawn |= {"seed": seed}
    if isinstance(step, LocalStep) and "rewarm" not in step.model_fields_set:
        drawn |= {"step": step.model_copy(update={"rewarm": step.usual_rewarm})}
    if spec.continue_from is not None:
        drawn |= {"continue_from": Continued(job=spec.continue_from.job)}
    return spec.model_copy(update=drawn)
