"""Prints tables: as wide as the terminal, and whole where there is none, so that nothing is cut in a pipe or a file."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from gradmarket.terminal import ShownConsole


def print_table(table: Table, console: Console | None = None) -> None:
    console = console or ShownConsole()
    if not console.is_terminal:
        wide = console.options.update(max_width=100_000)
        console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)
