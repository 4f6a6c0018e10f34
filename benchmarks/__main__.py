"""`make bench [ONLY=prefix] [JSON=path]`: every file of this folder that measures; one JSON line a figure, a table.

A benchmark is a file with `PREFIX`, which its figures' names begin with, and `measure() -> Iterator[Figure]`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.figure import Figure

PLUMBING = {"__main__", "figure", "pages"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", default="", help="figures whose name begins so")
    parser.add_argument("--json", type=Path, help="file to write the figures to, as a list")
    options = parser.parse_args()
    figures = []
    for figure in _measured(options.only):
        print(json.dumps(figure.line()), flush=True)
        figures.append(figure)
    _show(figures)
    if options.json:
        options.json.write_text(json.dumps([figure.line() for figure in figures], indent=2) + "\n")
    if not figures:
        print(f"nothing is called {options.only}…", file=sys.stderr)
    return 0 if figures and all(figure.ok is not False for figure in figures) else 1


def _measured(only: str) -> Iterator[Figure]:
    """Where a file's prefix begins the asked name, one whose shorter prefix does so too is not run for it."""
    names = sorted(module.name for module in iter_modules(benchmarks.__path__) if not module.ispkg)
    modules = [import_module(f"benchmarks.{name}") for name in names if name not in PLUMBING]
    nearest = max((len(module.PREFIX) for module in modules if only.startswith(module.PREFIX)), default=0)
    for module in modules:
        if module.PREFIX.startswith(only) or (only.startswith(module.PREFIX) and len(module.PREFIX) == nearest):
            yield from (figure for figure in module.measure() if figure.name.startswith(only))


def _show(figures: list[Figure]) -> None:
    table = Table("figure", "value", "target", "", "against", "ratio")
    for figure in figures:
        verdict = {True: "met", False: "missed", None: ""}[figure.ok]
        ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
        table.add_row(figure.name, f"{figure.value:.4g} {figure.unit}", figure.target, verdict, figure.peer, ratio)
    Console().print(table)


sys.exit(main())
