"""The form to post a job, made from the job's JSON schema, and an estimate of the job's cost."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from gradmarket.field_docs import describe_fields
from gradmarket.market.fields import faults_of, in_words
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit
from graphdoc import plugins

Schemas = Mapping[str, Mapping[str, Any]]

EXAMPLE: Final = """{
  "name": "digits",
  "model": {"architecture": "mlp"},
  "data": {"ready": "digits"},
  "step": {"rows": 32},
  "optimizer": {"lr": 0.1},
  "rounds": 10,
  "price": "0.01 %s"
}"""
_NULL: Final = r"\bnull\b"
DEPTH: Final = 3
"""Levels of the schema that the form shows; deeper values are written as JSON."""
LEFT_OUT: Final = frozenset({"staleness", "min_tasks", "growth"})
USUAL: Final = ("name", "model", "data", "step", "optimizer", "rounds", "tasks_per_round", "price", "replication")
"""Fields that most jobs set, in the form's order; the others follow folded."""
CHOSEN: Final[Mapping[str, Mapping[str, str]]] = {
    "model": {"ReadyModel": "architecture arguments", "DocumentModel": "document parameters evaluation metrics"},
    "data": {"ReadyData": "ready", "LinkedData": "manifest"},
    "step": {"GradientStep": "rows microbatch"},
    "replication": {"ProvenReplication": "name replicas audit"},
}
"""The schemas whose fields the form has, by fields that take several forms. Other forms are written as JSON."""
NAMED: Final[Mapping[str, str]] = {
    "model.architecture": "gradmarket.market.arguments",
    "optimizer.name": "gradmarket.market.gradient.optimizers",
    "aggregator.name": "gradmarket.market.gradient.aggregators",
    "uplink.codec": "gradmarket.market.gradient.codecs",
    "downlink.codec": "gradmarket.market.gradient.codecs",
    "replication.name": "gradmarket.market.rules.replication",
}
"""Fields that name a plug-in of a package."""
AMOUNTS: Final = frozenset({"price", "budget", "stake.bond"})
KINDS: Final = {"string": "text", "number": "number", "integer": "integer", "boolean": "flag"}
"""Kinds of fields by the type in the schema."""


@dataclass(frozen=True)
class FormField:
    """One field; `kind` is text, amount, number, integer, choice, flag, json or group. A group has `fields`.

    `example` is a value as it is typed; empty where the field has a default or choices.
    """

    name: str
    path: str
    kind: str
    required: bool
    help: str
    default: str
    example: str
    choices: tuple[str, ...] = ()
    fields: tuple["FormField", ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Estimate:
    """`gradients`: most gradients that are paid. `first`: replicas of the first wave. `audit`: probability of an audit.

    `short`: the consequence of a budget below the highest cost; empty where it covers that.
    """

    cost: str
    deposit: str
    gradients: int
    tasks: int
    first: int
    most: int
    audit: float
    short: str


@cache
def list_form_fields() -> tuple[FormField, ...]:
    """Returns the fields of a job, the usual ones first, with their descriptions in fields.json."""
    schema = JobSpec.model_json_schema()
    parts: Schemas = schema.get("$defs", {})
    describe_fields({"JobSpec": schema, **parts})
    fields = {one.name: one for one in _list_fields(schema, parts, "", DEPTH)}
    return tuple(fields[name] for name in (*USUAL, *(name for name in fields if name not in USUAL)))


def _list_fields(schema: Mapping[str, Any], parts: Schemas, path: str, depth: int) -> Iterator[FormField]:
    required = schema.get("required", ())
    for name, described in schema.get("properties", {}).items():
        if name not in LEFT_OUT:
            yield _build_field(name, f"{path}{name}", described, parts, name in required, depth)


def _build_field(
    name: str, path: str, described: Mapping[str, Any], parts: Schemas, required: bool, depth: int
) -> FormField:
    shape = _resolve_reference(described, parts)
    choices = tuple(map(str, shape.get("enum", ())))
    if not choices and path in NAMED:
        choices = tuple(plugins.list_plugin_names(NAMED[path]))
    # of a field of several forms those that are shown; all of them may be empty where there are several
    nested = list[FormField]()
    for form, names in CHOSEN.get(path, {}).items():
        needed = parts[form].get("required", ()) if required and len(CHOSEN[path]) == 1 else ()
        for one in names.split():
            inner = parts[form]["properties"][one]
            nested.append(_build_field(one, f"{path}.{one}", inner, parts, one in needed, depth - 1))
    if not nested and "properties" in shape and depth > 1:
        nested = list(_list_fields(shape, parts, f"{path}.", depth - 1))
    # the description's first sentence, in the form's words: it sends null for an empty field
    description = " ".join(str(described.get("description") or shape.get("description", "")).split())
    first = description.partition(". ")[0].rstrip(".")
    kind = "choice" if choices else KINDS.get(str(shape.get("type")), "json")
    if nested or path in AMOUNTS:
        kind = "group" if nested else "amount"
    default, example = described.get("default"), (described.get("examples") or [None])[0]
    return FormField(
        name=name,
        path=path,
        kind=kind,
        required=required,
        help="" if path in AMOUNTS or first in ("", "Name") else f"{re.sub(_NULL, 'empty', first)}.",
        default="" if isinstance(default, (dict, list, type(None))) else str(default),
        example="" if example is None or choices else example if isinstance(example, str) else json.dumps(example),
        choices=choices,
        fields=tuple(nested),
    )


def _resolve_reference(described: Mapping[str, Any], parts: Schemas) -> Mapping[str, Any]:
    """Follows references; of several forms takes the first that is not null."""
    if "$ref" in described:
        return _resolve_reference(parts[described["$ref"].rpartition("/")[2]], parts)
    for choice in ("anyOf", "oneOf", "allOf"):
        forms = [form for form in described.get(choice, ()) if form.get("type") != "null"]
        if len(forms) == 1:
            return _resolve_reference(forms[0], parts)
        if forms:
            return {}
    return described


def estimate_cost(spec: JobSpec, token: TokenUnit) -> Estimate:
    plan = spec.plan()
    tasks = spec.sizes.all
    short, expected = "", tasks * spec.replication.replicas * spec.price.most
    if spec.deposit < spec.most_expensive:
        most, enough = token.text(spec.most_expensive), token.text(expected)
        short = f"The budget of {token.text(spec.deposit)} " + (
            f"does not pay for all rounds, {enough} if nobody disagrees: the job will pause."
            if spec.deposit < expected
            else f"pays for all rounds if nobody disagrees, and not for {most} at most: the job may pause."
        )
    return Estimate(
        cost=token.text(spec.most_expensive),
        deposit=token.text(spec.deposit),
        gradients=tasks * spec.replication.max_replicas,
        tasks=tasks,
        first=plan.first_wave,
        most=plan.maximum,
        audit=plan.audit,
        short=short,
    )


def list_faults(error: ValidationError, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns where the given job is wrong, as the form names its fields, and why."""
    faults = (in_words(fault, fault["loc"], given) for fault in faults_of(error))
    return [(where or "the job", why) for where, why in faults]
