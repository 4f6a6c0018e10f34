"""Checks of a job that need neither a service nor a computation: its named plug-ins, its amounts and its deadlines.

Jobs are compared field by field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from gradmarket.market import arguments
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.fields import first_fault
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import ReadyModel
from gradmarket.market.printable import find_text_fault
from gradmarket.market.step import InnerOptimizer, LocalStep

LEAST_S = 5
"""The shortest deadline of a job: two polls may be 3 s apart, and an answer has to travel.

A worker that misses a deadline gets a strike and rests, so a shorter deadline would allow a submitter to bar any
worker. Jobs posted earlier are not checked again.
"""


def check_job_spec(spec: JobSpec) -> None:
    """Raises JobRefused, naming the field, for a job that every service refuses."""
    if why := find_text_fault(spec.name):
        raise JobRefused("name", why)
    _check_plugin("uplink.codec", lambda: load_codec(spec.uplink.codec))
    configure_aggregator(spec.aggregator.name, spec.aggregator.settings, spec.tasks_needed, spec.sizes.most)
    own = {"downlink.codec": spec.downlink.codec} if spec.downlink.small else {}
    first = {} if spec.downlink.first is None else {"downlink.first.codec": spec.downlink.first.codec}
    for field, codec in (own | first).items():
        _check_plugin(field, partial(load_codec, codec))
        if not load_codec(codec).GRADIENTS_ONLY:
            raise JobRefused(field, f"{codec} rounds buffers too: take fp32, or a codec for gradients like int8")
    move_of(spec)
    if isinstance(spec.step, LocalStep):
        build_optimizer_step("step.optimizer", spec.step.optimizer)
    if isinstance(spec.model, ReadyModel):
        arguments.parse_model_arguments(spec.model.architecture, spec.model.arguments)
    deadlines = spec.deadlines
    for name in ("lease_s", "wave_s", "upload_s"):
        if getattr(deadlines, name) < LEAST_S:
            fault = f"no honest worker can answer in less than {LEAST_S} seconds: name {LEAST_S} or more"
            raise JobRefused(f"deadlines.{name}", fault)
    # Refuses a budget that pays no round even if every task takes its quorum alone, at the rule's least price
    least = spec.tasks_needed * spec.plan().quorum * spec.price.least()
    if spec.deposit < least:
        raise JobRefused("budget", f"it pays for no round: name {least} or more")


def _check_plugin(field: str, load: object) -> None:
    try:
        load()  # type: ignore[operator]
    except Refused as error:
        raise JobRefused(field, error.detail) from error


def move_of(spec: JobSpec, number: int = 0) -> OptimizerStep:
    """Returns the job's optimizer step of a round. Raises JobRefused if optimizer or settings are unknown."""
    packed = load_codec(spec.downlink.codec_of(spec.rounds_before + number)) if spec.downlink.small else None
    return replace(build_optimizer_step("optimizer", spec.optimizer), downlink=packed)


def build_optimizer_step(field: str, wanted: InnerOptimizer) -> OptimizerStep:
    """Returns an optimizer with its settings. Raises JobRefused naming the part of `field` that is unknown."""
    try:
        rule = load_optimizer(wanted.name)
        return OptimizerStep(rule, rule.Settings(**wanted.settings), wanted.clip)
    except Refused as error:
        raise JobRefused(f"{field}.name", error.detail) from error
    except ValidationError as error:
        raise JobRefused(*first_fault(error, field)) from error


def list_fields(spec: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns a job's fields by their paths, such as optimizer.lr; lists are values."""
    found: dict[str, Any] = {}
    for name, value in spec.items():
        path = f"{above}{name}"
        found |= list_fields(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return found


def list_differences(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns, by field, the value of each job where not all are alike; None where a job does not have the field."""
    each = [list_fields(spec) for spec in specs]
    paths = dict.fromkeys(path for fields in each for path in fields)
    values = {path: [fields.get(path) for fields in each] for path in paths}
    return {path: of_all for path, of_all in values.items() if any(one != of_all[0] for one in of_all)}
