"""`make bench [ONLY=prefix] [JSON=path] [SMALLEST=1]`: every file here that measures; a JSON line a figure, a table.

A benchmark is a file with a line `PREFIX = "…"`, which its figures' names begin with, and `measure() ->
Iterator[Figure]`. All figures of a file that runs are shown, also those that ONLY does not name: ratios are made from
them. One that fails is a line of the table; the others run on.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.figure import Failure, Figure
from benchmarks.size import SMALLEST

PREFIX: Final = re.compile(r'^PREFIX(?:: Final)? = "([^"]+)"$', re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", nargs="+", default=[""], help="benchmarks with figures whose name begins so")
    parser.add_argument("--json", type=Path, help="file to write the figures to, as a list")
    parser.add_argument("--smallest", action="store_true", help="at the smallest size: whether it runs, not how fast")
    options = parser.parse_args()
    if options.smallest:
        os.environ[SMALLEST] = "1"
    found: list[Figure | Failure] = []
    for line in _measured(chosen(prefixes(), options.only)):
        # At the smallest size a target has no meaning.
        found.append(replace(line, target="") if options.smallest and isinstance(line, Figure) else line)
        print(json.dumps(found[-1].line()), flush=True)
        if options.json:
            part = options.json.with_name(f"{options.json.name}.part")  # a reader finds the last whole list
            part.write_text(json.dumps([each.line() for each in found], indent=2) + "\n")
            part.replace(options.json)
    _show(found)
    failed = any(isinstance(line, Failure) for line in found)
    for only in options.only:
        if not failed and not any(line.name.startswith(only) for line in found):
            print(f"nothing is called {only}…", file=sys.stderr)
            return 1
    return 0 if all(line.ok is not False for line in found) else 1


def prefixes() -> dict[str, str]:
    """Returns the benchmarks' prefixes by module, read without importing any: one that fails there is one of many."""
    paths = sorted(path for folder in benchmarks.__path__ for path in Path(folder).glob("*.py"))
    found = {path.stem: PREFIX.search(path.read_text()) for path in paths}
    return {name: match[1] for name, match in found.items() if match}


def chosen(all_: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Returns those with figures whose name begins with one of the names, in the order of `all_`."""
    asked = set[str]().union(*(_of_name(all_, only) for only in names))
    return {name: prefix for name, prefix in all_.items() if name in asked}


def _of_name(all_: Mapping[str, str], only: str) -> set[str]:
    """Where a file's prefix begins the asked name, one whose shorter prefix does so too is not run for it."""
    nearest = max((len(prefix) for prefix in all_.values() if only.startswith(prefix)), default=0)
    return {
        name
        for name, prefix in all_.items()
        if prefix.startswith(only) or (only.startswith(prefix) and len(prefix) == nearest)
    }


def _measured(modules: Mapping[str, str]) -> Iterator[Figure | Failure]:
    for name, prefix in modules.items():
        began = time.perf_counter()
        try:
            yield from import_module(f"benchmarks.{name}").measure()
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            yield Failure(prefix, " ".join(f"{type(error).__name__}: {error}".split()))
        print(f"measured {prefix} in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


def _show(found: list[Figure | Failure]) -> None:
    table = Table("figure", "value", "target", "", "against", "ratio")
    for line in found:
        if isinstance(line, Failure):
            table.add_row(line.name, "failed", "", "", line.reason, "")
            continue
        verdict = {True: "met", False: "missed", None: ""}[line.ok]
        ratio = "" if line.ratio is None else f"{line.ratio:.3g}"
        peer = line.peer if line.peer_value is None else f"{line.peer}: {line.peer_value:.4g} {line.unit}".rstrip()
        table.add_row(line.name, f"{line.value:.4g} {line.unit}", line.target, verdict, peer, ratio)
    Console().print(table)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its children end with it
    sys.exit(main())
