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
    choices = tuple(map(str, shape.get("enum", ()))) or _list_choices(path)
    nested = tuple(_list_chosen_fields(path, parts, required, depth)) or (
        tuple(_list_fields(shape, parts, f"{path}.", depth - 1)) if "properties" in shape and depth > 1 else ()
    )
    default, example = described.get("default"), (described.get("examples") or [None])[0]
    return FormField(
        name=name,
        path=path,
        kind="group" if nested else "amount" if path in AMOUNTS else _choose_field_kind(shape, choices),
        required=required,
        help="" if path in AMOUNTS else _shorten_help(described, shape),
        default="" if isinstance(default, (dict, list, type(None))) else str(default),
        example="" if example is None or choices else example if isinstance(example, str) else json.dumps(example),
        choices=choices,
        fields=nested,
    )


def _shorten_help(described: Mapping[str, Any], shape: Mapping[str, Any]) -> str:
    """Returns the first sentence of a field's description, in the form's words: it sends null for an empty one."""
    description = " ".join(str(described.get("description") or shape.get("description", "")).split())
    first = description.partition(". ")[0].rstrip(".")
    return "" if first in ("", "Name") else f"{re.sub(_NULL, 'empty', first)}."


def _list_choices(path: str) -> tuple[str, ...]:
    return tuple(plugins.list_plugin_names(NAMED[path])) if path in NAMED else ()


def _list_chosen_fields(path: str, parts: Schemas, needed: bool, depth: int) -> Iterator[FormField]:
    """Yields the fields that the form shows of a field of several forms; all may be empty where there are several."""
    for schema, names in CHOSEN.get(path, {}).items():
        required = parts[schema].get("required", ()) if needed and len(CHOSEN[path]) == 1 else ()
        for name in names.split():
            described = parts[schema]["properties"][name]
            yield _build_field(name, f"{path}.{name}", described, parts, name in required, depth - 1)


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


def _choose_field_kind(shape: Mapping[str, Any], choices: tuple[str, ...]) -> str:
    if choices:
        return "choice"
    kinds = {"string": "text", "number": "number", "integer": "integer", "boolean": "flag"}
    return kinds.get(str(shape.get("type")), "json")


def estimate_cost(spec: JobSpec, token: TokenUnit) -> Estimate:
    plan = spec.plan()
    tasks = spec.sizes.all
    return Estimate(
        cost=token.text(spec.most_expensive),
        deposit=token.text(spec.deposit),
        gradients=tasks * spec.replication.max_replicas,
        tasks=tasks,
        first=plan.first_wave,
        most=plan.maximum,
        audit=plan.audit,
        short=_describe_shortage(spec, token),
    )


def _describe_shortage(spec: JobSpec, token: TokenUnit) -> str:
    if spec.deposit >= spec.most_expensive:
        return ""
    most, expected = spec.most_expensive, spec.sizes.all * spec.replication.replicas * spec.price.most
    budget = f"The budget of {token.text(spec.deposit)}"
    if spec.deposit < expected:
        return f"{budget} does not pay for all rounds, {token.text(expected)} if nobody disagrees: the job will pause."
    return (
        f"{budget} pays for all rounds if nobody disagrees, and not for {token.text(most)} at most: the job may pause."
    )


def list_faults(error: ValidationError, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns where the given job is wrong, as the form names its fields, and why."""
    faults = (in_words(fault, fault["loc"], given) for fault in faults_of(error))
    return [(where or "the job", why) for where, why in faults]
