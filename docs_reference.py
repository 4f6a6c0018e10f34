"""Pages of the docs site that are made from the code when it is built: commands, Python and REST. A hook of mkdocs."""

import inspect
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from fastapi import FastAPI
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

from gradmarket import Market, TrainingJob
from gradmarket.callbacks import Callback
from gradmarket.cli import COMMANDS, app
from gradmarket.client import AsyncRequesterClient
from gradmarket.sdk.sweep import Sweep
from graphdoc import plugins
from requester.api import problems
from requester.app import routers_with
from requester.features import FEATURES
from requester.features.described_api import install_openapi

CALLBACKS: Final = "gradmarket.callbacks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages to the site's."""
    for name, text in (("cli", commands()), ("python", python()), ("rest", rest())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def commands() -> str:
    """Returns every command with its arguments and options."""
    root: Any = get_command(app)
    context = root.make_context("gradmarket", [], resilient_parsing=True)
    head = "# Commands\n\n`gradmarket --help` shows the same; `--install-completion` lets a shell complete it.\n"
    found = {name: root.resolve_command(context, [name])[1] for name in COMMANDS}
    return head + "".join(part for name, command in found.items() for part in _command(f"gradmarket {name}", command))


def _command(name: str, command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        rows = "".join(_option(parameter) for parameter in command.params)
        head = "| argument or option | meaning |\n|---|---|\n" if rows else ""
        yield f"\n## {name}\n\n{inspect.cleandoc(command.help or '')}\n\n{head}{rows}"
    for word, inner in below.items():
        yield from _command(f"{name} {word}", inner)


def _option(parameter: Any) -> str:
    given = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or parameter.name.upper()]
    return f"| {', '.join(f'`{name}`' for name in given)} | {(parameter.help or '').replace('|', '/')} |\n"


def python() -> str:
    """Returns what a researcher imports, by its docstrings."""
    kinds = [
        Market,
        TrainingJob,
        Sweep,
        AsyncRequesterClient,
        Callback,
        *map(_recorder, plugins.list_plugin_names(CALLBACKS)),
    ]
    return "# Python\n\n`from gradmarket import Market, TrainingJob`\n" + "".join(map(_class, kinds))


def _recorder(name: str) -> type:
    """Returns the class that the module of a callback defines."""
    module = import_module(f"{CALLBACKS}.{name}")
    return next(kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__)


def _class(kind: type) -> str:
    public = {name: member for name, member in vars(kind).items() if not name.startswith("_") and member.__doc__}
    parts = [f"### {name}\n\n{_signature(name, member)}{inspect.getdoc(member)}\n\n" for name, member in public.items()]
    return f"\n## {kind.__name__}\n\n`{kind.__module__}`\n\n{inspect.getdoc(kind) or ''}\n\n" + "".join(parts)


def _signature(name: str, member: Any) -> str:
    if not inspect.isfunction(member):
        return ""
    return f"```python\n{name}{inspect.signature(member)}\n```\n\n"


def rest() -> str:
    """Returns every operation of the API, by its tag."""
    described = FastAPI(title="gradmarket", responses=problems.EVERYWHERE)
    install_openapi(described)
    for router in routers_with(FEATURES):
        described.include_router(router)
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, operations in described.openapi()["paths"].items():
        for method, operation in operations.items():
            by_tag[operation.get("tags", ["other"])[0]].append(_operation(method.upper(), path, operation))
    head = "# REST\n\nA running service describes all of it, with every field, at `/docs` and `/openapi.json`.\n"
    table = "| request | name | what it does | answers |\n|---|---|---|---|\n"
    return head + "".join(f"\n## {tag}\n\n{table}{''.join(rows)}" for tag, rows in sorted(by_tag.items()))


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    statuses = ", ".join(sorted(operation["responses"]))
    return f"| `{method} {path}` | `{operation['operationId']}` | {operation.get('summary', '')} | {statuses} |\n"
