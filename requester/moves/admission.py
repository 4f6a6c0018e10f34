"""Checks of a posted job that need no computation."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.fields import first_fault
from gradmarket.market.gradient.aggregators import configured
from gradmarket.market.gradient.codecs import Codec, codec
from gradmarket.market.gradient.optimizers import optimizer
from gradmarket.market.gradient.round_update import OptimizerStep
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Deadlines, Link, LinkedData, ReadyModel
from gradmarket.market.model import arguments
from gradmarket.market.rules import payment, verifiers
from gradmarket.market.step import InnerOptimizer, LocalStep
from gradmarket.market.terms import Amount, Units
from gradmarket.requester import dataset
from gradmarket.requester.context import Context

LEAST_S = 5
"""The shortest deadline of a job: two polls may be 3 s apart (workers.HERE_S), and an answer has to travel.

Who misses a deadline has a strike and rests, so a submitter could do that to whomever it likes. Jobs that were posted
before are not asked again.
"""


@dataclass(frozen=True)
class Admitted:
    """A job's amounts, converted to units."""

    unit: Amount
    most: Units
    """The highest price of a gradient."""
    budget: Units


def admit(context: Context, spec: JobSpec) -> Admitted:
    """Checks all that needs no computation, and converts the job's amounts. Raises JobRefused naming the field."""
    _plugin("uplink.codec", lambda: codec(spec.uplink.codec))
    configured(spec.aggregator.name, spec.aggregator.settings, spec.tasks_needed, spec.sizes.most)
    move_of(spec)
    if isinstance(spec.step, LocalStep):
        chosen("step.optimizer", spec.step.optimizer)
    if spec.step.leaves and (fault := _no_windows(spec)):
        raise JobRefused("step.window", fault)
    if isinstance(spec.model, ReadyModel):
        arguments.parsed(spec.model.architecture, spec.model.arguments)
    if isinstance(spec.data, LinkedData):
        dataset.check_rows_of_a_task(dataset.manifest_of(context.blobs, spec, context.public_url), spec)
    unit = Amount(int(context.chain_facts.unit))
    for field, amount in spec.price.prices.items():
        payment.in_units(field, amount, unit, payment.MAX_PRICE)
    _can_be_met(spec.deadlines)
    _takes_stakes(context, spec, unit)
    most = payment.in_units("price", spec.price.most, unit, payment.MAX_PRICE)
    _pays_a_round(spec)
    return Admitted(unit, most, payment.in_units("budget", spec.deposit, unit))


def completed(spec: JobSpec, seed: int) -> JobSpec:
    """Returns the job with what its requester left open: its seed, and the re-warm of its local steps."""
    step = spec.step
    drawn: dict[str, Any] = {} if "seed" in spec.model_fields_set else {"seed": seed}
    if isinstance(step, LocalStep) and "rewarm" not in step.model_fields_set:
        drawn |= {"step": step.model_copy(update={"rewarm": step.usual_rewarm})}
    return spec.model_copy(update=drawn)


def _no_windows(spec: JobSpec) -> str:
    """Returns why audits of this job cannot repeat two windows of a task; empty where they can."""
    if not spec.audited:
        return 'only audits use windows: set audit, {"probability": 0.1} say, or leave it out'
    if spec.verifier.name != verifiers.DEFAULT:
        return f"a state is compared by bits: set verifier to {verifiers.DEFAULT}, or leave it out"
    if spec.gain is not None:
        return f"{spec.replication.name} counts audits of whole tasks: set another replication, or leave it out"
    return ""


def _pays_a_round(spec: JobSpec) -> None:
    """Refuses a budget that pays no round even if every task takes its quorum alone, at the rule's least price."""
    least = spec.tasks_needed * spec.plan().quorum * spec.price.least()
    if spec.deposit < least:
        raise JobRefused("budget", f"it pays for no round: name {least} or more")


def _can_be_met(deadlines: Deadlines) -> None:
    for name in ("lease_s", "wave_s", "upload_s"):
        if getattr(deadlines, name) < LEAST_S:
            said = f"no honest worker can answer in less than {LEAST_S} seconds: name {LEAST_S} or more"
            raise JobRefused(f"deadlines.{name}", said)


def _takes_stakes(context: Context, spec: JobSpec, unit: Amount) -> None:
    if spec.stake is None:
        return
    payment.in_units("stake.bond", spec.stake.bond, unit)
    if context.settings.owner is not None:
        raise JobRefused("stake", "only a job's owner can accuse, and another key owns this service's jobs")


def _plugin(field: str, load: object) -> None:
    try:
        load()  # type: ignore[operator]
    except Refused as error:
        raise JobRefused(field, error.detail) from error


def move_of(spec: JobSpec) -> OptimizerStep:
    """Returns the job's optimizer step. Raises JobRefused if optimizer, settings or downlink are unknown."""
    return replace(chosen("optimizer", spec.optimizer), downlink=_downlink(spec.downlink.codec))


def _downlink(name: str) -> Codec | None:
    if not Link(codec=name).small:
        return None
    _plugin("downlink.codec", lambda: codec(name))
    if not codec(name).GRADIENTS_ONLY:
        raise JobRefused("downlink.codec", f"{name} rounds buffers too: take fp32, or a codec for gradients like int8")
    return codec(name)


def chosen(field: str, wanted: InnerOptimizer) -> OptimizerStep:
    """Returns an optimizer with its settings. Raises JobRefused naming the part of `field` that is unknown."""
    try:
        rule = optimizer(wanted.name)
        return OptimizerStep(rule, rule.Settings(**wanted.settings), wanted.clip)
    except Refused as error:
        raise JobRefused(f"{field}.name", error.detail) from error
    except ValidationError as error:
        raise JobRefused(*first_fault(error, field)) from error
