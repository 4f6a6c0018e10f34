"""`make figures`: writes the committed results into the pages that quote them.

A quoted figure stands between tags: `<!--=doors.worst_ms:.1f-->4.6<!--/-->`. The opening tag names a figure of
benchmarks/results/*.json and how it is written: a Python format for the value, `ratio:.2f` for its ratio to the peer,
`target` for its target and whether it is missed, `date` for the day it was measured.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
QUOTE: Final = re.compile(
    r"(<!--=(?P<name>[^>:]+):(?P<how>(?:ratio:)?[.,]\S+?|target|date)-->)(?P<text>[^\n]*?)<!--/-->"
)
SKIPPED: Final = {"CHANGELOG.md"}

Figures = dict[str, dict[str, Any]]


def pages() -> list[Path]:
    top = [path for path in sorted(ROOT.glob("*.md")) if path.name not in SKIPPED]
    return [*top, *sorted(ROOT.glob("docs/**/*.md"))]


def results(folder: Path = RESULTS) -> Figures:
    """Every committed figure by its name. `ValueError` where two files have one of a name, or one failed."""
    found: Figures = {}
    for path in sorted(folder.glob("*.json")):
        for figure in json.loads(path.read_text()):
            if figure["name"] in found:
                raise ValueError(f"{path.name} has {figure['name']} again: delete one of the two results")
            if "failed" in figure:
                raise ValueError(f"{path.name}: {figure['name']} failed, {figure['failed']}: measure it again")
            found[figure["name"]] = figure
    return found


def written(figure: dict[str, Any], how: str) -> str:
    if how == "date":
        return str(figure["measured"])
    if how == "target":
        missed = ": missed" if figure["ok"] is False else ""
        return str(figure["target"]) + missed
    field, _, spec = how.rpartition(":")
    return format(figure[field or "value"], spec)


def renewed(page: str, figures: Figures) -> str:
    """The page with each quoted figure as its result has it. `ValueError` where a figure has no result."""

    def quote(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in figures:
            raise ValueError(f"{name} has no committed result: make bench ONLY={name} JSON=benchmarks/results/….json")
        return f"{match[1]}{written(figures[name], match['how'])}<!--/-->"

    return QUOTE.sub(quote, page)


def main() -> int:
    try:
        figures = results()
        for path in pages():
            before = path.read_text()
            after = renewed(before, figures)
            if after != before:
                path.write_text(after)
                print(f"{path.relative_to(ROOT)}: renewed")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
