"""A job's loss, round by round, as a picture.

    python examples/curve.py JOB FILE.svg

`loss` is what the workers measured on their rows before each round; `held-out` what the service measured after it.
"""

import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from gradmarket import Market, TrainingJob

WIDTH, HEIGHT, EDGE = 480, 280, 44
COLOURS = ("#1f5fa8", "#c2571a")
Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Points (round, value) by name."""


def curves(job: TrainingJob) -> Curves:
    rounds = [one for one in job.rounds() if one.loss is not None]
    held_out = [(one.number, one.metrics["loss"]) for one in rounds if one.metrics]
    return {"loss": [(one.number, one.loss) for one in job.rounds() if one.loss is not None], "held-out": held_out}


def svg(title: str, drawn: Curves) -> str:
    """Straight lines between the points, from zero up."""
    points = [point for curve in drawn.values() for point in curve]
    last, top = max(1, *(number for number, _ in points)), max(value for _, value in points) * 1.05
    lines = [_line(curve, last, top, colour) for curve, colour in zip(drawn.values(), COLOURS, strict=True)]
    named = [
        f'<text x="{WIDTH - EDGE}" y="{EDGE + 18 * place}" fill="{colour}" text-anchor="end">{escape(name)}</text>'
        for place, (name, colour) in enumerate(zip(drawn, COLOURS, strict=True))
    ]
    axes = f'<path d="M{EDGE} {EDGE / 2}V{HEIGHT - EDGE}H{WIDTH - EDGE / 2}" fill="none" stroke="#666"/>'
    words = [
        f'<text x="{EDGE}" y="16">{escape(title)}</text>',
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 20}" text-anchor="end">round {last}</text>',
        f'<text x="{EDGE - 6}" y="{EDGE // 2 + 4}" text-anchor="end">{top:.2g}</text>',
        f'<text x="{EDGE - 6}" y="{HEIGHT - EDGE}" text-anchor="end">0</text>',
    ]
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([head, background, axes, *lines, *named, *words, "</svg>"]) + "\n"


def _line(curve: Sequence[tuple[int, float]], last: int, top: float, colour: str) -> str:
    across, up = (WIDTH - 1.5 * EDGE) / last, (HEIGHT - 1.5 * EDGE) / top
    points = " ".join(f"{EDGE + number * across:.1f},{HEIGHT - EDGE - value * up:.1f}" for number, value in curve)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def main(job_id: str, path: Path, title: str | None = None) -> None:
    with Market() as market:
        job = market.job(job_id)
        path.write_text(svg(title or job.view().name, curves(job)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
