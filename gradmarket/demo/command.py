"""The command `gradmarket demo`."""

import json
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.demo import kept_demos
from gradmarket.demo.children import STOPS
from gradmarket.demo.demo_run import run_demo
from gradmarket.terminal import ShownConsole, echo_text
from gradmarket.user_files import check_writable

app = typer.Typer(invoke_without_command=True)


@app.callback()
def demo(
    context: typer.Context,
    report: Annotated[Path | None, typer.Option(help="File to write the report to, as JSON.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave service and chain up at the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The whole market on this machine: honest workers, cheats, money. Ends with 0 only if everything held."""
    if context.invoked_subcommand is not None:
        return
    for number in STOPS:
        signal.signal(number, interrupt_demo)
    if report is not None:
        check_writable(report)
    done = run_demo(ShownConsole(stderr=as_json), keep)
    if report is not None:
        report.write_text(json.dumps(done, indent=2) + "\n")
    if as_json:
        print_json(done)
    raise typer.Exit(0 if done["ok"] else 1)


@app.command()
def stop(as_json: JsonOption = False) -> None:
    """End every demo that was left up: its service, its chain and its folder."""
    folders = kept_demos.list_kept_demos()
    for folder in folders:
        kept_demos.stop_kept_demo(folder)
    if as_json:
        print_json({"stopped": [str(folder) for folder in folders]})
    for folder in [] if as_json else folders:
        echo_text(f"stopped; {folder} is deleted")
    if not folders and not as_json:
        echo_text("no demo is up")


def interrupt_demo(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the demo and ignores further signals, so that the cleanup completes."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt("Interrupted: the demo's processes, chain and folder are gone.")
