"""The command `gradmarket`. Each command group is imported only when called, so that help appears at once.

Errors of all commands are printed here, by gradmarket.mistakes: in two lines, or as JSON with --json.
"""

import gc
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from gradmarket.terminal import INTERRUPTED, echo_text

COMMANDS: Final = {
    "serve": ("requester.cli", "serve", "Serve jobs to workers; its own local chain if none is configured."),
    "queue": (
        "requester.features.many_machines.queue",
        "app",
        "Run the service's stages in Celery workers, on many machines.",
    ),
    "migrate": ("gradmarket.commands.migrate", "migrate", "Bring the service's database to this version's tables."),
    "demo": ("gradmarket.demo.command", "app", "The whole market on this machine: honest workers, cheats, money."),
    "job": ("gradmarket.commands.job_commands", "app", "Post a job, watch it, steer it, download its model."),
    "new": ("gradmarket.commands.new", "new", "Write a training script and its settings; it runs at once."),
    "data": ("gradmarket.commands.data", "app", "Cut a dataset into partitions, and upload them."),
    "worker": ("worker.cli", "app", "Sell gradients: run a worker, look after its wallet."),
    "auditor": ("gradmarket.commands.auditor_command", "app", "Run accepted tasks again: the requester's own check."),
    "audit": ("gradmarket.commands.audit", "audit", "Check a whole job as a stranger: verdicts, rounds, money, bits."),
    "archive": ("gradmarket.commands.audit", "archive", "Write all that an audit of a job needs into a folder."),
    "token": ("gradmarket.commands.token", "app", "API tokens: make, list and end them."),
    "webhook": ("gradmarket.commands.features.webhooks", "app", "Have news of your jobs posted to an address."),
    "verdict": ("gradmarket.commands.verdict", "app", "Check a verdict by the evidence that the service publishes."),
    "wallet": ("worker.cli", "wallet_app", "A worker's key and its earnings."),
    "chain": ("gradmarket.commands.chain", "app", "The chain that holds the money."),
    "simulate": ("gradmarket.commands.simulate", "simulate", "A market in miniature: the gains of attacks."),
    "settings": ("gradmarket.commands.reference", "settings", "Every setting, its default and its meaning."),
    "errors": ("gradmarket.commands.reference", "errors", "Every kind of error of the API, and its remedy."),
    "backup": (
        "gradmarket.commands.features.backup",
        "backup",
        "Copy the service's database, blobs and keys while it serves.",
    ),
    "restore": (
        "gradmarket.commands.features.backup",
        "restore",
        "Check a backup, and copy it into a new data folder.",
    ),
    "doctor": ("gradmarket.commands.doctor", "doctor", "This machine's faults, and their fixes."),
}
"""Name -> module, attribute of the module, and the command's line in the help."""


MISTAKES: Final = "gradmarket.mistakes"
"""Imported when something went wrong: it knows the errors of everything that the commands use."""
DEBUG: Final = "--debug"
JSON: Final = "--json"
DOCTOR: Final = "doctor"
SETTING_NAMES: Final = "gradmarket.setting_names"
EVERY_COMMAND_READS: Final = frozenset({"GRADMARKET_URL", "GRADMARKET_TOKEN", "GRADMARKET_DATA"})
FOLDERS: Final = frozenset({"--cache", "--data", "--dataset", "--folder"})
FILES: Final = frozenset(
    {"--consent", "--from", "--output", "--passphrase-file", "--receipts", "--report", "--to", "-o"}
)
"""Options whose empty value, from a variable that is not set, would be the folder in which the command was called."""


class LazyGroup(TyperGroup):
    """Lists the commands from the table, imports a command when it is called, and prints its errors."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> NoReturn:
        """Runs the command and exits. `--debug` and `--json` are meant wherever they stand."""
        words = list(sys.argv[1:] if args is None else args)
        given = [word for word in words if word != DEBUG]
        try:
            for word in given:
                if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
                    raise typer.BadParameter(f"{word.encode(errors='replace').decode()!r} is not text in UTF-8")
            for option, word in pairwise([*given, "."]):
                name = option.removesuffix("=")
                if (name in FOLDERS or name in FILES) and not (word if name == option else ""):
                    place = "a folder" if name in FOLDERS else "a place"
                    raise typer.BadParameter(f"{name} is empty: name {place}, or leave it out")
            others = {name for name in os.environ if name.upper().startswith("GRADMARKET_")} - EVERY_COMMAND_READS
            if others and DOCTOR not in given:  # which lists them itself
                with suppress(ModuleNotFoundError):  # an installation without workers and service has no settings
                    for text in import_module(SETTING_NAMES).find_misspelt_settings(others):
                        echo_text(json.dumps({"warning": text}) if JSON in given else f"warning: {text}", err=True)
            code = super().main(given, prog_name, **{**options, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001
            print_error = import_module(MISTAKES).print_error
            code = print_error(error, self._find_called_command(given), as_json=JSON in given, debug=given != words)
        except KeyboardInterrupt:  # before the command: `invoke` sees the others
            echo_text("Interrupted.", err=True)
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            echo_text(str(interrupt) or "Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None

    def _find_called_command(self, words: Sequence[str]) -> str:
        """Returns the command that the words begin with, such as "gradmarket job show"."""
        name, at = "gradmarket", self
        for word in words:
            subcommand = getattr(at, "commands", {}).get(word)
            if subcommand is None:
                break
            name = f"{name} {word}"
            try:
                at = _load_command(word) if at is self else subcommand
            except ModuleNotFoundError:
                break
        return name

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else _load_command(name), rest


@cache
def _load_command(name: str) -> Any:
    module, attribute, _ = COMMANDS[name]
    # imported modules stay: repeated garbage collection of their objects took a fifth of the start
    gc.disable()
    try:
        command = getattr(import_module(module), attribute)
    finally:
        gc.freeze()
        gc.enable()
    wrapper = typer.Typer(add_completion=False)
    if not isinstance(command, typer.Typer):
        wrapper.command(name)(command)
        return get_command(wrapper)
    wrapper.add_typer(command, name=name)
    return get_group(wrapper).commands[name]


def _stand_in_for_command() -> None:
    """Stands in for a command in the list until it is called."""


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    help="A marketplace for gradients: train a model on strangers' GPUs, pay for work.",
)


def _print_version(asked: bool) -> None:
    if asked:
        echo_text(f"gradmarket {version('gradmarket')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; anywhere.")] = False,
    shown: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A marketplace for gradients: train a model on strangers' GPUs, pay for work."""


for _name, (_module, _, _line) in COMMANDS.items():
    # a feature whose folder was deleted takes its commands along
    _place = Path(__file__).parent.parent / _module.replace(".", "/")
    if ".features." not in _module or _place.is_dir() or _place.with_suffix(".py").is_file():
        app.command(_name, help=_line)(_stand_in_for_command)
