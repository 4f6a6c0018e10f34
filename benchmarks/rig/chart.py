"""Curves of a loss as a picture: cost from left to right, the loss from below."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 56, 20, 40, 44
COLOURS = ("#222222", "#1f5fa8", "#c2571a", "#3b8a4c", "#8f6fb0", "#b8952b")
LOWEST = 0.05
"""Of the scale: free below the lowest loss."""
Points = Sequence[tuple[float, float]]
"""(cost, loss)."""


def svg(title: str, unit: str, curves: Mapping[str, Points], reached: float) -> str:
    """The scale from left to right is logarithmic. `reached`: a loss that a dashed line marks."""
    scale = _Scale(curves)
    parts = [f'<text x="{LEFT}" y="22" font-weight="bold">{escape(title)}</text>', *_grid(scale, unit)]
    y = scale.y(reached)
    parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#888" stroke-dasharray="5 4"/>')
    for row, ((name, points), colour) in enumerate(zip(curves.items(), COLOURS, strict=False)):
        drawn = " ".join(f"{scale.x(x):.1f},{scale.y(loss):.1f}" for x, loss in points)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        place = f'x="{WIDTH - RIGHT - 8}" y="{TOP + 18 + 17 * row}" text-anchor="end"'
        parts.append(f'<text {place} fill="{colour}">{escape(name)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'{head} font-size="12">', background, *parts, "</svg>\n"])


class _Scale:
    def __init__(self, curves: Mapping[str, Points]) -> None:
        across, losses = ([point[i] for points in curves.values() for point in points] for i in (0, 1))
        self.left, self.right = log10(min(across)), log10(max(across))
        self.top = max(losses)
        self.bottom = min(losses) - LOWEST * (self.top - min(losses))

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - self.left) / (self.right - self.left)

    def y(self, loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.top - loss) / (self.top - self.bottom)


def _grid(scale: _Scale, unit: str) -> Iterator[str]:
    under = HEIGHT - BOTTOM
    for power in range(ceil(scale.left), floor(scale.right) + 1):
        x = scale.x(10.0**power)
        yield f'<path d="M{x:.1f} {TOP}V{under}" stroke="#e4e4e4"/>'
        yield f'<text x="{x:.1f}" y="{under + 16}" text-anchor="middle" fill="#555">{_number(power)}</text>'
    for tenth in range(ceil(scale.bottom * 5), floor(scale.top * 5) + 1):
        y = scale.y(tenth / 5)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{tenth / 5:.1f}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" fill="#555">{escape(unit)}</text>'
    yield f'<text x="8" y="{TOP - 6}" fill="#555">nats</text>'


def _number(power: int) -> str:
    return f"{10**power:,}" if 0 <= power <= 4 else f"10^{power}"
