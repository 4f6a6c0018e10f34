"""The command `gradmarket demo`."""

import json
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from gradmarket.commands.edge import JsonOption, check_writable, say_json
from gradmarket.demo.children import STOPS
from gradmarket.demo.demo_run import run_demo
from gradmarket.terminal import ShownConsole


def demo(
    report: Annotated[Path | None, typer.Option(help="File to write the report to, as JSON.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave service and chain up at the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The whole market on this machine: honest workers, cheats, money. Ends with 0 only if everything held."""
    for number in STOPS:
        signal.signal(number, interrupt_demo)
    if report is not None:
        check_writable(report)
    done = run_demo(ShownConsole(stderr=as_json), keep)
    if report is not None:
        report.write_text(json.dumps(done, indent=2) + "\n")
    if as_json:
        say_json(done)
    raise typer.Exit(0 if done["ok"] else 1)


def interrupt_demo(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the demo and ignores further signals, so that the cleanup completes."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
