"""`gradmarket job reference`: every field of a job's file, made from the schema that the service checks it by."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from gradmarket.field_docs import describe_fields, parse_docstrings
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import metric_names
from gradmarket.terminal import echo_text
from graphdoc import plugins

Json = dict[str, Any]
HEAD: Final = """# The job file

A job is a JSON object. `gradmarket job submit FILE.json` posts it, and `POST /v1/jobs` takes the same. This page is
made by `gradmarket job reference > docs/job.md`; an editor completes and checks a file that begins with
`"$schema": "docs/job.schema.json"` (made by `gradmarket job reference --schema`).

Amounts are written like `"0.01 GRAD"` or `"1e18 units"`, or as whole numbers of the token's smallest unit in a
string. Brackets hold what a field takes and its default; a field without one is needed, unless its meaning names what
stands in. An interval like [0, 1) lacks its end at the round bracket.
"""
PLUGINS: Final = {
    "Architectures": ("gradmarket.market.arguments", '`"model": {"architecture": NAME, "arguments": {…}}`'),
    "Optimizers": ("gradmarket.market.gradient.optimizers", '`"optimizer": {"name": NAME, "lr": …, …}`'),
    "Aggregators": ("gradmarket.market.gradient.aggregators", '`"aggregator": {"name": NAME, …}`'),
    "Price rules": ("gradmarket.market.rules.pricing", '`"price": {"name": NAME, …}`, or an amount for `fixed`'),
    "Verifiers": ("gradmarket.market.rules.verifiers", '`"verifier": {"name": NAME, …}`'),
}

METRICS: Final = """
## Metrics

`"evaluation": {"metrics": [NAME, …]}`, each of all held-out rows together and no mean over batches. An uploaded model
has a document of its own for them, `model.metrics`, which `Market.train(…, metrics=[NAME, function])` makes: a function
takes the module's answer and y, of all rows, and returns one number. A label of -100 counts for nothing.

"""
BESIDE: Final = re.compile(r" Omitted where [^.]*\.| \(rules\.\w+\)")
"""Notes of the schema that do not concern the author of a job."""
LOWER: Final = {"minimum": "[", "exclusiveMinimum": "("}
UPPER: Final = {"maximum": "]", "exclusiveMaximum": ")"}
BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


class NoSettings(BaseModel):
    pass


def reference(
    schema: Annotated[bool, typer.Option("--schema", help="The JSON schema for editors instead.")] = False,
) -> None:
    """List every field of a job's file with its default and meaning, and the arguments of every plug-in."""
    echo_text(json.dumps(editors_schema(), indent=1) + "\n" if schema else build_job_reference(), nl=False)


def editors_schema() -> Json:
    """Returns the job's JSON schema, its fields in words."""
    whole = JobSpec.model_json_schema()
    describe_fields({"JobSpec": whole, **whole["$defs"]})
    whole["properties"] = {"$schema": {"type": "string"}, **whole["properties"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}


def build_job_reference() -> str:
    """Returns the Markdown of docs/job.md."""
    whole = editors_schema()
    del whole["properties"]["$schema"]
    parts = [f"\n## The job\n\n{_format_fields_table(whole)}"]
    parts += [
        f"\n### {name}\n\n{_format_description(part)}{_format_fields_table(part)}"
        for name, part in whole["$defs"].items()
    ]
    for title, (package, use) in PLUGINS.items():
        parts.append(f"\n## {title}\n\n{use}\n")
        shared: Json = {}
        for name in plugins.list_plugin_names(package):
            module = plugins.load_plugin(package, name)
            settings: type[BaseModel] = getattr(module, "Settings", NoSettings)
            own, schema = parse_docstrings(settings), settings.model_json_schema()
            fields = schema.get("properties", {}).items()
            for field, field_schema in fields:
                field_schema.setdefault("description", own.get(field, ""))
            shared |= schema.get("$defs", {})
            about = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
            if any(field_schema["description"] for _, field_schema in fields):
                table = _format_fields_table(schema)
            else:  # in one line
                taken = ", ".join(_taken(field, field_schema, needed=False) for field, field_schema in fields)
                table = f"{taken}.\n" if taken else "It has no fields.\n"
            parts.append(f"\n### `{name}`\n\n{about} {_format_description(schema)}{table}".replace("  ", " "))
        parts += [
            f"\n### {name}\n\n{_format_description(part)}{_format_fields_table(part)}"
            for name, part in sorted(shared.items())
        ]
    parts += [METRICS, *(f"- `{name}`: {meaning}\n" for name, meaning in metric_names.READY.items())]
    return HEAD + "".join(parts)


def _format_description(schema: Json) -> str:
    description = " ".join(schema.get("description", "").split())
    return f"{description}\n\n" if description else "\n\n"


def _format_fields_table(schema: Json) -> str:
    needed, lines = schema.get("required", ()), ""
    for name, field_schema in schema.get("properties", {}).items():
        meaning = BESIDE.sub("", " ".join(field_schema.get("description", "").split()))
        lines += f"- {_taken(name, field_schema, name in needed)}{f': {meaning}' if meaning else ''}\n"
    return lines or "It has no fields.\n"


def _taken(name: str, schema: Json, needed: bool) -> str:
    default = "" if needed or "default" not in schema else f"; `{json.dumps(schema['default'])}`"
    return f"`{name}` ({', '.join(_list_field_kinds(schema))}{default})"


def _list_field_kinds(schema: Json) -> Iterator[str]:
    """Yields the kinds of value that the field takes, and its bounds."""
    forms = schema.get("anyOf") or schema.get("oneOf")
    if forms:
        yield " or ".join(", ".join(_list_field_kinds(form)) for form in forms)
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "enum" in schema or "const" in schema:
        yield " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    elif schema.get("type") == "array":
        yield f"list of {', '.join(_list_field_kinds(schema.get('items', {})))}"
    else:
        yield str(schema.get("type", "anything"))
    lower, upper = (next((bound for bound in bounds if bound in schema), "") for bounds in (LOWER, UPPER))
    if lower and upper:
        yield f"{LOWER[lower]}{schema[lower]:g}, {schema[upper]:g}{UPPER[upper]}"
    else:
        yield from (f"{sign} {schema[bound]:g}" for bound, sign in BOUNDS.items() if bound in schema)
