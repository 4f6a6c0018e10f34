"""Makes docs/results/figures.md: committed figures with targets that no page quotes, a list for each benchmark."""

import ast
import sys
from collections import defaultdict
from typing import Any, Final

from benchmarks.__main__ import prefixes
from benchmarks.pages import QUOTE, ROOT, pages, results, written

PAGE: Final = ROOT / "docs" / "results" / "figures.md"
MANY: Final = 30
EXTREMES: Final = ("memory.least", "memory.most", "worst_ms")
HEAD: Final = f"""# Measured figures

`make figures` makes this page from `benchmarks/results/`: every committed figure whose target no other page quotes; of
a benchmark with more than {MANY} only the extremes. Brackets hold the target. It ran on two shared cores, `cuda` on an
H100.
"""

Figure = dict[str, Any]


def page(figures: dict[str, Figure]) -> str:
    """Returns the page; benchmarks without a committed result are named at its end."""
    modules = prefixes()
    quoted = {
        match["name"] for path in pages() for match in QUOTE.finditer(path.read_text()) if match["how"] == "target"
    }
    groups: dict[str, list[Figure]] = defaultdict(list)
    for name, figure in figures.items():
        fitting = [module for module, prefix in modules.items() if name.startswith(prefix)]
        groups[max(fitting, key=lambda module: len(modules[module]))].append(figure)
    parts = [HEAD]
    for module in sorted(groups):
        aimed = [figure for figure in groups[module] if figure["target"] and figure["name"] not in quoted]
        extremes = [figure for figure in aimed if figure["name"].removeprefix(modules[module]) in EXTREMES]
        shown = extremes if len(aimed) > MANY else aimed
        if shown:
            parts.append(_list(module, modules[module].rstrip("."), shown))
    lacking = ", ".join(f"`{prefix.rstrip('.')}`" for module, prefix in modules.items() if module not in groups)
    return "".join(parts) + f"\n## Without a committed result\n\n{lacking}.\n"


def _list(module: str, title: str, shown: list[Figure]) -> str:
    meaning = ast.get_docstring(ast.parse((ROOT / "benchmarks" / f"{module}.py").read_text())) or ""
    sentence = " ".join(meaning.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    peers = sorted({figure["peer"] for figure in shown if figure["ratio"] not in (None, figure["value"])})
    beside = f", × over {peers[0]}" if len(peers) == 1 else ""
    day = max(figure["measured"] for figure in shown)
    lines = [f"\n## {title}\n\n{sentence} ({day}{beside}).\n\n"]
    for figure in shown:
        ratio, peer = figure["ratio"], "" if beside else f" over {figure['peer']}"
        over = "" if ratio in (None, figure["value"]) else f", ×{ratio:.3g}{peer}"
        value = f"{figure['value']:.3g} {figure['unit']}".strip()
        target = written(figure, "target").replace("<= ", "≤").replace(">= ", "≥")
        lines.append(f"- `{figure['name']}` {value}{over} ({target})\n")
    return "".join(lines)


def main() -> int:
    PAGE.write_text(page(results()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
