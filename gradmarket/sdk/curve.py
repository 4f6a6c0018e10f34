"""A job's loss, round by round, as an SVG picture: shown by notebooks, and saved to a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Final

from gradmarket.market.errors import Refused
from gradmarket.market.printable import replace_controls
from gradmarket.market.views.job_views import RoundView

WIDTH, HEIGHT, EDGE = 480, 280, 44
COLOURS: Final = ("#1f5fa8", "#c2571a", "#1d8a55", "#8a4fc4", "#b3276f", "#6b6b00", "#00788a", "#555555")
Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Points (round, value) by name."""


@dataclass(frozen=True)
class Curve:
    """An SVG picture of `WIDTH` by `HEIGHT` pixels."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Path | str) -> None:
        Path(path).write_text(self.svg)


def draw_loss_curve(title: str, rounds: Sequence[RoundView]) -> Curve:
    """Draws the workers' loss before each round, and the service's loss on held-out rows after it.

    Raises Refused while no round has a loss.
    """
    loss = [(one.number, one.loss) for one in rounds if one.loss is not None]
    held_out = [(one.number, one.metrics["loss"]) for one in rounds if one.metrics and "loss" in one.metrics]
    if not loss:
        raise Refused("no round of this job has a loss yet", "wait until its first round is closed")
    return Curve(_draw_svg(title, {"training loss": loss, "held-out loss": held_out}))


def draw_curves(title: str, curves: Curves) -> Curve:
    """Draws one line for each name. Raises Refused while there is no point."""
    drawn = {name: points for name, points in curves.items() if points}
    if not drawn:
        raise Refused("no round of these jobs has a loss yet", "wait until a first round is closed")
    return Curve(_draw_svg(title, drawn))


def _draw_svg(title: str, drawn: Curves) -> str:
    """Straight lines between the points, from zero up, or from the lowest where a loss is negative."""
    points = [point for curve in drawn.values() for point in curve]
    values = [value for _, value in points]
    last, low = max(1, *(number for number, _ in points)), min(0.0, *values)
    top = low + ((max(values) - low) * 1.05 or 1.0)
    across, up = (WIDTH - 1.5 * EDGE) / last, (HEIGHT - 1.5 * EDGE) / (top - low)
    lines = []
    for curve, colour in zip(drawn.values(), cycle(COLOURS)):
        placed = ((EDGE + number * across, HEIGHT - EDGE - (value - low) * up) for number, value in curve)
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        lines.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    named = [
        f'<text x="{WIDTH - EDGE}" y="{EDGE + 18 * place}" fill="{colour}" text-anchor="end">{escape(name)}</text>'
        for place, (name, colour) in enumerate(zip(drawn, cycle(COLOURS)))
    ]
    axes = f'<path d="M{EDGE} {EDGE / 2}V{HEIGHT - EDGE}H{WIDTH - EDGE / 2}" fill="none" stroke="#666"/>'
    words = [
        f'<text x="{EDGE}" y="16">{escape(replace_controls(title))}</text>',
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 20}" text-anchor="end">round {last}</text>',
        f'<text x="{EDGE - 6}" y="{EDGE // 2 + 4}" text-anchor="end">{top:.2g}</text>',
        f'<text x="{EDGE - 6}" y="{HEIGHT - EDGE}" text-anchor="end">{low:.2g}</text>',
    ]
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([head, background, axes, *lines, *named, *words, "</svg>"]) + "\n"
