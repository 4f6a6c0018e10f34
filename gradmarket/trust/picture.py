"""Draws the forecast: how often colluders decide a task, by their share, for several numbers of replicas."""

from fractions import Fraction
from typing import Final

from gradmarket.market.terms import Plan
from gradmarket.trust.collusion import ColludingPool, compute_odds
from gradmarket.trust.forecast import Forecast

WIDTH: Final = 720
HEIGHT: Final = 420
LEFT: Final = 70
TOP: Final = 40
PLOT: Final = (600, 310)
MOST: Final = Fraction(1, 2)
STEPS: Final = 50
COMPARED: Final = ((1, "#b8b8b8"), (3, "#6f9bd1"), (5, "#3b6aa0"), (7, "#1d3d63"))
OWN: Final = "#c0392b"


def draw_forecast_svg(forecast: Forecast, workers: int | None) -> str:
    """Returns a complete SVG document."""
    lines = [_draw_curve(Plan(r, r // 2 + 1, r), workers, colour, 1.5) for r, colour in COMPARED]
    lines.append(_draw_curve(forecast.plan, workers, OWN, 3.0))
    names = [(f"R = {r}", colour) for r, colour in COMPARED] + [("this job", OWN)]
    legend = [_draw_text(LEFT + 20, TOP + 20 + 18 * line, name, colour) for line, (name, colour) in enumerate(names)]
    axes, marks = list[str](), list[str]()
    for tenth in range(6):
        share = tenth / 10
        x, _ = _compute_point(share, 0.0)
        _, y = _compute_point(0.0, share)
        axes.append(f'<path d="M{x:.1f} {TOP} V{TOP + PLOT[1]} M{LEFT} {y:.1f} H{LEFT + PLOT[0]}" stroke="#e4e4e4"/>')
        axes.append(_draw_text(x - 12, TOP + PLOT[1] + 20, f"{share:.0%}", "#555"))
        axes.append(_draw_text(LEFT - 42, y + 4, f"{share:.0%}", "#555"))
    for row in forecast.rows:
        if row.colluding <= MOST:
            x, y = _compute_point(row.colluding, row.wrong_per_task)
            label = _draw_text(x + 7, y - 6, f"{row.wrong_per_task:.1%}", OWN)
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{OWN}"/>' + label)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _draw_text(LEFT, 24, "A task is decided by workers that act as one", "#222"),
            *axes,
            _draw_text(LEFT + 200, HEIGHT - 16, "share of workers that act as one", "#555"),
            *lines,
            *marks,
            *legend,
            "</svg>\n",
        ]
    )


def _draw_curve(plan: Plan, workers: int | None, colour: str, width: float) -> str:
    """Draws one curve, at shares that are whole numbers of workers if the market is finite."""
    steps = STEPS if workers is None else max(1, workers // 2)
    whole = STEPS * 2 if workers is None else workers
    shares = [Fraction(step, whole) for step in range(steps + 1)]
    points = [
        _compute_point(float(share), float(compute_odds(plan, ColludingPool(share, workers)).wrongly_accepted))
        for share in shares
    ]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{drawn}"/>'


def _compute_point(share: float, chance: float) -> tuple[float, float]:
    width, height = PLOT
    return LEFT + width * share / float(MOST), TOP + height * (1.0 - min(chance, 0.5) / 0.5)


def _draw_text(x: float, y: float, words: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{words}</text>'
