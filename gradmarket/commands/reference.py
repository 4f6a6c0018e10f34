"""`gradmarket settings` and `gradmarket errors`: pages of reference that are made from the code."""

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic_settings import BaseSettings

from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.field_docs import parse_docstrings
from gradmarket.terminal import echo_text
from requester.api.problem_kinds import list_problem_kinds
from requester.settings import RequesterSettings as ServiceSettings
from worker.settings import WorkerSettings

KINDS: Final[dict[str, type[BaseSettings]]] = {"The service": ServiceSettings, "A worker": WorkerSettings}
SIGNS: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
SETTINGS_HEAD: Final = """# Settings

Each is read once, at the start, from the environment, or from an option of the same name where the command has one.
This page is made by `gradmarket settings > docs/settings.md`. Brackets hold kind and default. Sets are JSON lists, such
as `["10.0.0.0/8"]`.
"""


def settings(as_json: JsonOption = False) -> None:
    """List every setting of the service and of a worker: its kind, its default and its meaning."""
    if as_json:
        print_json({title: list(list_setting_rows(kind)) for title, kind in KINDS.items()})
        return
    echo_text(build_settings_page(), nl=False)


def build_settings_page() -> str:
    """Returns the Markdown of docs/settings.md."""
    page = SETTINGS_HEAD
    for title, kind in KINDS.items():
        page += f"\n## {title}\n\n"
        for row in list_setting_rows(kind):
            default = f"; {row['default']}" if row["default"] else ""
            page += f"- `{row['name']}` ({row['kind']}{default}): {row['meaning']}\n"
    return page


def list_setting_rows(kind: type[BaseSettings]) -> Iterator[dict[str, str]]:
    prefix, meanings = kind.model_config["env_prefix"], parse_docstrings(kind)
    for name, field in kind.model_fields.items():
        found = {sign: getattr(bound, sign) for bound in field.metadata for sign in SIGNS if hasattr(bound, sign)}
        bounds = [f"{SIGNS[sign]} {value}" for sign, value in found.items()]
        lower, upper = (next((sign for sign in signs if sign in found), "") for signs in (("ge", "gt"), ("le", "lt")))
        if lower and upper:
            bounds = [f"{'[' if lower == 'ge' else '('}{found[lower]}, {found[upper]}{']' if upper == 'le' else ')'}"]
        default = f"`{field.default}`"
        if field.default is None or field.default == frozenset():
            default = ""
        elif isinstance(field.default, frozenset):
            default = f"`{json.dumps(sorted(map(str, field.default)))}`"
        elif isinstance(field.default, Path) and field.default.is_relative_to(Path.home()):
            default = f"`~/{field.default.relative_to(Path.home())}`"
        yield {
            "name": f"{prefix}{name}".upper(),
            "kind": ", ".join([_describe_kind(field.annotation), *bounds]),
            "default": default,
            "meaning": meanings.get(name, ""),
        }


def _describe_kind(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_describe_kind(part) for part in inner if part is not types.NoneType)
    if origin is frozenset:
        return f"set of {_describe_kind(inner[0])}"
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in inner)
    if origin is typing.Annotated:
        return _describe_kind(inner[0])
    names = {"SecretStr": "secret", "HttpUrl": "address", "IPvAnyNetwork": "network", "str": "text"}
    name = getattr(annotation, "__name__", str(annotation))
    return names.get(name, name.lower())


ERRORS_HEAD: Final = """# Errors

The API answers errors as problem details (RFC 9457, `application/problem+json`). `type` is one of these kinds,
as `/errors#` and its name, relative to the service's address, where the same list is a page. `title` and `status` are
HTTP's. `detail` describes the fault, `remedy` its fix, and `errors` lists `field` and `detail` of each
field at fault. A poll's answer names refusals of single messages by the same words (`code`). This page is made by
`gradmarket errors > docs/errors.md`; the remedy is slanted.

"""


def errors(as_json: JsonOption = False) -> None:
    """List every kind of problem that the API answers with: its status, its meaning and its remedy."""
    print_json([asdict(kind) for kind in list_problem_kinds()]) if as_json else echo_text(build_errors_page(), nl=False)


def build_errors_page() -> str:
    """Returns the Markdown of docs/errors.md."""
    return ERRORS_HEAD + "".join(
        f"- `{kind.code}` ({kind.status.value}): {kind.meaning} *{kind.remedy}*\n" for kind in list_problem_kinds()
    )
