"""Prints all output of the command, so that no stranger's text controls the terminal. A table is as wide as the
terminal, and whole where there is none, so that nothing is cut in a pipe or a file.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from gradmarket.market.printable import escape_controls, printable_lines

INTERRUPTED: Final = 130
"""The shells' exit code for a command that Ctrl-C ended."""


def echo_text(text: object, err: bool = False, nl: bool = True) -> None:
    """Prints text, of one or more lines."""
    typer.echo(printable_lines(str(text)), err=err, nl=nl)


def echo_json(value: Any, **how: Any) -> None:
    """Prints JSON as `json.dumps` makes it, every letter as it is but those that control a terminal."""
    typer.echo(escape_controls(json.dumps(value, ensure_ascii=False, **how)))


class ShownConsole(Console):
    """A console for tables, colours and live panels. Rich's own controls are segments apart from those of text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


def print_table(table: Table, console: Console | None = None) -> None:
    console = console or ShownConsole()
    if not console.is_terminal:
        wide = console.options.update(max_width=100_000)
        console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)
