"""Shared by the commands: common options, and how answers are printed."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError
from gradmarket.terminal import echo_json

COMPLETED: Final = 200
"""Jobs that a completion looks through."""

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


def _job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Returns for a shell's completion the ids with this beginning, each with the job's name and state; none without a
    service: a completion reports no faults."""
    asked = context.params
    try:
        with find_endpoint(asked.get("market"), asked.get("token"), asked.get("data")).market() as client:
            jobs = islice(client.jobs(), COMPLETED)
            return [(job.id, f"{job.name} ({job.state})") for job in jobs if job.id.startswith(incomplete)]
    except MarketError:
        return []


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=_job_ids)]


def print_json(value: Any) -> None:
    """Prints JSON; an answer of the service as the service writes it."""
    echo_json(value, default=lambda one: one.model_dump(mode="json", by_alias=True, serialize_as_any=True))
