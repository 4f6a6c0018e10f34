"""`python -m containers`, which is `make demo-containers`."""

import json
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from containers.container_run import play
from gradmarket.demo.children import STOPS
from gradmarket.demo.command import interrupt_demo
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error


def main(
    report: Annotated[Path | None, typer.Option(help="File to write the report to, as JSON.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services and the workers up at the end.")] = False,
    build: Annotated[bool, typer.Option(help="Build the images first.")] = True,
) -> None:
    """The whole market in containers: honest workers, cheats, money. Ends with 0 only if everything held."""
    for number in STOPS:
        signal.signal(number, interrupt_demo)
    try:
        done = play(Console(), keep, build)
    except MarketError as error:
        raise typer.Exit(print_error(error, "make demo-containers")) from error
    if report is not None:
        report.write_text(json.dumps(done, indent=2) + "\n")
    raise typer.Exit(0 if done["ok"] else 1)


if __name__ == "__main__":
    typer.run(main)
