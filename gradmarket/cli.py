"""The command `gradmarket`. Each command group is imported only when called, so that help appears at once."""

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

COMMANDS: Final = {
    "serve": ("gradmarket.requester.cli", "serve", "Serve jobs to workers; its own local chain if none is configured."),
    "queue": ("gradmarket.requester.queue", "app", "Run the service's stages in Celery workers, on many machines."),
    "migrate": ("gradmarket.commands.migrate", "migrate", "Bring the service's database to this version's tables."),
    "demo": ("gradmarket.demo.command", "demo", "The whole market on this machine: honest workers, cheats, money."),
    "job": ("gradmarket.commands.job_commands", "app", "Post a job, watch it, steer it, download what it trained."),
    "data": ("gradmarket.commands.data", "app", "Cut a dataset into partitions, and upload them."),
    "worker": ("gradmarket.worker.cli.worker_commands", "app", "Sell gradients: run a worker, look after its wallet."),
    "auditor": ("gradmarket.commands.auditor_command", "app", "Run accepted tasks again: the requester's own check."),
    "token": ("gradmarket.commands.token", "app", "API tokens: make, list and end them."),
    "verdict": ("gradmarket.commands.verdict", "app", "Check a verdict by the evidence that the service publishes."),
    "wallet": ("gradmarket.worker.cli.worker_commands", "wallet_app", "A worker's key, and what it has earned."),
    "chain": ("gradmarket.commands.chain", "app", "The chain that holds the money."),
    "simulate": ("gradmarket.commands.simulate", "simulate", "A market in miniature: what attacks gain."),
    "settings": ("gradmarket.commands.settings", "settings", "Every setting, its default and what it means."),
    "backup": ("gradmarket.commands.backup", "backup", "Copy the service's database, blobs and keys while it serves."),
    "restore": ("gradmarket.commands.backup", "restore", "Check a backup, and copy it into a new data folder."),
    "doctor": ("gradmarket.commands.doctor", "doctor", "What this machine lacks, and how to mend it."),
}
"""Name -> module, attribute of the module, and the command's line in the help."""


class LazyGroup(TyperGroup):
    """Lists the commands from the table, and imports a command when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else _loaded(name), rest


def _loaded(name: str) -> Any:
    module, attribute, _ = COMMANDS[name]
    command = getattr(import_module(module), attribute)
    wrapper = typer.Typer(add_completion=False)
    if not isinstance(command, typer.Typer):
        wrapper.command(name)(command)
        return get_command(wrapper)
    wrapper.add_typer(command, name=name)
    return get_group(wrapper).commands[name]


def _placeholder() -> None:
    """Stands in for a command in the list until it is called."""


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    help="A marketplace for gradients: train a model on strangers' GPUs, pay for work.",
)
for _name, (_, _, _line) in COMMANDS.items():
    app.command(_name, help=_line)(_placeholder)
