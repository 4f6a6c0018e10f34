"""A round's spans as a picture: `python -m benchmarks.rig.picture SPANS.jsonl FILE.svg`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median_low

WIDTH, LABEL, ROW, TOP = 900, 230, 16, 34
COLOURS = {"stage": "#4c78a8", "request": "#b8b8b8", "transaction": "#f2a900"}
THEIRS = ("fastapi.", "GET ", "PUT ", "POST ", "HEAD ", "DELETE ")
"""Prefix of FastAPI's own spans: each request's is in ours."""
OTHER = "#8f6fb0"
LEAST = 0.0005
"""Seconds: shorter bars are drawn so long."""


@dataclass(frozen=True)
class Span:
    name: str
    began: float
    ended: float


def read(file: Path) -> list[Span]:
    lines = (json.loads(line) for line in file.read_text().splitlines())
    own = (one for one in lines if not one["name"].startswith(THEIRS))
    return [Span(one["name"], _seconds(one["start_time"]), _seconds(one["end_time"])) for one in own]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def one_round(spans: Sequence[Span]) -> tuple[float, float]:
    """Returns when the round of median length began and ended: from one stored update to the next."""
    ends = sorted(span.ended for span in spans if span.name == "store parameters")
    between = list(pairwise(ends))[2:] or list(pairwise(ends))
    middle = median_low([after - before for before, after in between])
    return next(pair for pair in between if pair[1] - pair[0] == middle)


def drawn(spans: Sequence[Span]) -> str:
    """Returns the SVG: a row for each kind of span, in the order in which they begin; time from left to right."""
    began, ended = one_round(spans)
    inside = [span for span in sorted(spans, key=lambda span: span.began) if span.ended > began and span.began < ended]
    names = list(dict.fromkeys(span.name for span in inside))
    scale = (WIDTH - LABEL - 10) / (ended - began)
    parts = [_text(LABEL, 20, f"one round, {1000 * (ended - began):.0f} ms, from one published update to the next")]
    for row, name in enumerate(names):
        own, y = [span for span in inside if span.name == name], TOP + ROW * row
        total = sum(min(span.ended, ended) - max(span.began, began) for span in own)
        parts.append(_text(4, y + 12, f"{name}  {1000 * total:.0f} ms"))
        for span in own:
            left = LABEL + scale * (max(span.began, began) - began)
            width = scale * max(LEAST, min(span.ended, ended) - max(span.began, began))
            parts.append(
                f'<rect x="{left:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}" fill="{_colour(name)}"/>'
            )
    height = TOP + ROW * len(names) + 8
    box = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(words)}</text>'


def _colour(name: str) -> str:
    return COLOURS.get(name.split()[0], OTHER)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(drawn(read(source)))
