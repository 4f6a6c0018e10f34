"""Shared by the commands: common options, and how answers and errors are printed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.errors import MarketError

MarketOption = Annotated[
    str | None, typer.Option("--market", help="Address of the service; else GRADMARKET_URL, else this machine's own.")
]
TokenOption = Annotated[
    str | None, typer.Option("--token", help="The requester's API token; else GRADMARKET_TOKEN, else the folder's.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The service's data folder on this machine; else GRADMARKET_DATA, else data."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


@contextmanager
def told() -> Iterator[None]:
    """Prints a MarketError in a few lines on standard error and exits with 1."""
    try:
        yield
    except MarketError as error:
        typer.echo(f"error: {error}", err=True)
        for field in error.fields if isinstance(error, ServiceProblem) else ():
            typer.echo(f"  {field.name or 'the job'}: {field.detail}", err=True)
        raise typer.Exit(1) from error


def say_json(value: Any) -> None:
    """Prints JSON; an answer of the service as the service writes it."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=_fields))


def _fields(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, serialize_as_any=True)
