"""Describes every field in the OpenAPI document, with its unit, and an example where it has no fields itself.

The text for "Schema.field" in fields.json comes first, then the field's own docstring in its model, then the text for
the name in fields.json, which lies beside the routes.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

Json = dict[str, Any]
OURS: Final = {"gradmarket", "graphdoc", "requester", "worker"}


class Words(NamedTuple):
    text: str
    example: Any


def describe_fields(schemas: Json) -> None:
    """Adds a description and an example to each field of the schemas that has none."""
    models = {model.__name__: model for model in _list_subclasses(BaseModel)}
    for name, schema in schemas.items():
        own = parse_docstrings(models[name]) if name in models else {}
        for field, property_schema in schema.get("properties", {}).items():
            words, special = words_of(name, field), _load_field_words().get(f"{name}.{field}")
            text = (special[0] if special else "") or own.get(field) or (words.text if words else "")
            property_schema.setdefault("description", text)
            # an object moves into the description: generators of clients cannot write such a default down
            if isinstance(property_schema.get("default"), dict):
                property_schema["description"] += f" Where it is left out: {json.dumps(property_schema.pop('default'))}"
            shows = {"examples", "default", "const", "enum"} & property_schema.keys()
            if words and not shows and "$ref" not in json.dumps(property_schema):  # nor has it fields itself
                property_schema["examples"] = [words.example]


def words_of(schema: str, field: str) -> Words | None:
    words = _load_field_words()
    found = words.get(f"{schema}.{field}") or words.get(field)
    return Words(*found) if found else None


@cache
def _load_field_words() -> dict[str, list[Any]]:
    words: dict[str, list[Any]] = json.loads(files("requester.api").joinpath("fields.json").read_text())
    return words


def parse_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the texts that stand under a model's fields, those of its bases included."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind.__module__.partition(".")[0] in OURS:
            found.update(_under_fields(kind))
    return found


@cache
def _under_fields(kind: type[BaseModel]) -> dict[str, str]:
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:  # made while the program runs, such as a page's model
        return {}
    found: dict[str, str] = {}
    for line, below in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[line.target.id] = " ".join(text.split())
    return found


def _list_subclasses(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from _list_subclasses(each)
