"""The form to post a job, made from the job's JSON schema, and what the job in it would cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit

EXAMPLE: Final = """{
  "name": "digits",
  "model": {"architecture": "mlp"},
  "data": {"ready": "digits"},
  "step": {"rows": 32},
  "optimizer": {"lr": 0.1},
  "rounds": 10,
  "price": "1e16 units"
}"""
DEPTH: Final = 3
"""Levels of the schema that the form shows; what is deeper is written as JSON."""
LEFT_OUT: Final = frozenset({"staleness", "min_tasks", "growth"})


@dataclass(frozen=True)
class FormField:
    """One field; `kind` is text, number, integer, choice, flag, json or group. A group has `fields`."""

    name: str
    path: str
    kind: str
    required: bool
    help: str
    default: str
    choices: tuple[str, ...] = ()
    fields: tuple["FormField", ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Estimate:
    """`gradients`: that are paid at most; `first`: replicas that are asked first; `audit`: probability of an audit."""

    cost: str
    deposit: str
    gradients: int
    tasks: int
    first: int
    most: int
    audit: float


@cache
def list_form_fields() -> tuple[FormField, ...]:
    schema = JobSpec.model_json_schema()
    return tuple(_list_fields(schema, schema.get("$defs", {}), "", DEPTH))


def _list_fields(schema: Mapping[str, Any], parts: Mapping[str, Any], path: str, depth: int) -> Iterator[FormField]:
    required = schema.get("required", ())
    for name, described in schema.get("properties", {}).items():
        if name not in LEFT_OUT:
            yield _build_field(name, f"{path}{name}", described, parts, name in required, depth)


def _build_field(
    name: str, path: str, described: Mapping[str, Any], parts: Mapping[str, Any], required: bool, depth: int
) -> FormField:
    shape = _resolve_reference(described, parts)
    nested = shape.get("type") == "object" and "properties" in shape and depth > 1
    return FormField(
        name=name,
        path=path,
        kind="group" if nested else _choose_field_kind(shape),
        required=required,
        help=" ".join(str(described.get("description", shape.get("description", ""))).split()),
        default="" if isinstance(described.get("default"), (dict, list, type(None))) else str(described["default"]),
        choices=tuple(map(str, shape.get("enum", ()))),
        fields=tuple(_list_fields(shape, parts, f"{path}.", depth - 1)) if nested else (),
    )


def _resolve_reference(described: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _choose_field_kind(shape: Mapping[str, Any]) -> str:
    if "enum" in shape:
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
    )


def list_faults(error: ValidationError) -> list[tuple[str, str]]:
    """Returns where the job is wrong, as dotted paths, and why."""
    return [(".".join(map(str, one["loc"])) or "the job", one["msg"]) for one in error.errors(include_url=False)]
