"""Draws a skew simulation: each partition's share of the updates, and the loss on it, under every policy."""

from collections.abc import Sequence
from typing import Final

from gradmarket.simulation.skew import POLICIES, SkewOutcome

WIDTH: Final = 900
LEFT: Final = 60
PLOT: Final = (WIDTH - LEFT - 20, 150)
TOPS: Final = (90, 310)
COLOURS: Final = ("#c0392b", "#b8b8b8", "#3b6aa0")
HEIGHT: Final = 510


def draw_skew_svg(outcomes: Sequence[SkewOutcome], slow: int) -> str:
    """Returns a complete SVG document; the last `slow` partitions are slow for every machine."""
    legend = []
    for row, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=True)):
        x = LEFT + 280 * row
        words = f"{POLICIES[outcome.policy]}: {outcome.seconds:.0f} s, worst share {outcome.worst_share(slow):.2f}"
        legend += [f'<rect x="{x}" y="34" width="11" height="11" fill="{colour}"/>', _draw_text(x + 16, 44, words)]
    shares, losses = [outcome.shares for outcome in outcomes], [outcome.losses for outcome in outcomes]
    title = f"The last {slow} of {len(shares[0])} partitions are slow for every machine"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _draw_text(LEFT, 20, title),
            *legend,
            *_draw_bars(TOPS[0], "share of the updates, by partition", shares),
            *_draw_bars(TOPS[1], "loss on it at the end", losses),
            "</svg>\n",
        ]
    )


def _draw_bars(top: int, title: str, series: Sequence[Sequence[float]]) -> list[str]:
    width, height = PLOT
    most = max(max(values) for values in series) or 1.0
    group = width / len(series[0])
    bar = 0.8 * group / len(series)
    lines = [_draw_text(LEFT, top - 8, title), _draw_text(4, top + 10, f"{most:.3g}"), _draw_text(4, top + height, "0")]
    lines.append(f'<path d="M{LEFT} {top + height} H{LEFT + width}" stroke="#555"/>')
    for number, (values, colour) in enumerate(zip(series, COLOURS, strict=True)):
        for index, value in enumerate(values):
            tall = height * value / most
            x, y = LEFT + group * index + bar * number, top + height - tall
            lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" height="{tall:.1f}" fill="{colour}"/>')
    lines += [_draw_text(LEFT + group * index, top + height + 16, str(index)) for index in range(0, len(series[0]), 5)]
    return lines


def _draw_text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222">{words}</text>'
