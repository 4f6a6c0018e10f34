"""Shared by the worker's commands: options, the settings made from them, and how errors are printed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr, ValidationError

from gradmarket.contracts import keystore
from gradmarket.market.errors import MarketError
from gradmarket.market.fields import first_fault
from gradmarket.worker import wallet
from gradmarket.worker.settings import WorkerSettings
from gradmarket.worker.signals import LeaveNow

RpcOption = Annotated[str | None, typer.Option("--rpc", help="Your own JSON-RPC node of the chain.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Folder of the key, the vouchers and the cache.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", help="File whose first line opens the key.")
]
PlainOption = Annotated[bool, typer.Option("--plain-key", help="Let the key lie unencrypted.")]


def settings_of(**given: Any) -> WorkerSettings:
    """Builds the settings; options take precedence over the environment, which takes precedence over defaults."""
    try:
        return WorkerSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise typer.BadParameter(": ".join(first_fault(error))) from error


@contextmanager
def told() -> Iterator[None]:
    """Prints a MarketError as one line and exits with 1."""
    try:
        yield
    except MarketError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except LeaveNow as left:
        raise typer.Exit(1) from left


def unlocked(settings: WorkerSettings) -> WorkerSettings:
    """Asks for the passphrase at the terminal if the wallet needs one and none is set."""
    path = wallet.find(settings.data)
    if path is None or path.name != wallet.ENCRYPTED or settings.secret is not None:
        return settings
    typed = keystore.asked(str(path))
    return settings if typed is None else settings.model_copy(update={"passphrase": SecretStr(typed)})
