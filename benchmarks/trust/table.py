"""Points of accuracy lost under each attack by each defence, and the table as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from benchmarks.trust.attacks import ATTACKS
from benchmarks.trust.defences import DEFENCES
from benchmarks.trust.replay import Course, Replayed
from benchmarks.trust.run import Run, Setting
from benchmarks.trust.workloads import Trained

NO_ATTACK = "no attack"
BASELINE = "mean"
WIDTH, HEIGHT, LEFT, TOP = 74, 26, 190, 118


@dataclass
class Table:
    """`lost[defence][attack]`: points below the plain mean without an attack, whose accuracy is `baseline`.

    `courses`, likewise: the costs of the runs of a defence that repeats rounds.
    """

    workload: str
    baseline: float
    lost: dict[str, dict[str, float]] = field(default_factory=dict)
    courses: dict[str, dict[str, list[Course]]] = field(default_factory=dict)


def fill(
    trained: Trained,
    setting: Setting,
    defences: Sequence[str] = tuple(DEFENCES),
    attacks: Sequence[str] = tuple(ATTACKS),
) -> Iterator[Table]:
    """The table, once more after each defence."""
    table = Table(trained.workload.name, Run(trained, DEFENCES[BASELINE], setting).accuracy(None))
    for name in defences:
        how = DEFENCES[name]
        run = (Replayed if how.replays else Run)(trained, how, replace(setting, norm_bound=how.norm_bound))
        tried = {NO_ATTACK: None, **{attack: attack for attack in attacks}}
        table.lost[name] = {label: table.baseline - run.accuracy(attack) for label, attack in tried.items()}
        if isinstance(run, Replayed):
            table.courses[name] = run.courses
        yield table


def picture(table: Table) -> str:
    """SVG: a row an attack, a column a defence; the darker, the more is lost."""
    width = LEFT + WIDTH * len(table.lost) + 90
    height = TOP + HEIGHT * len(next(iter(table.lost.values()))) + 8
    style = "text{font:12px sans-serif;fill:#222}.n{text-anchor:middle}.h{font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>\n'
        + "".join(_drawn(table))
        + "\n</svg>\n"
    )


def _drawn(table: Table) -> Iterator[str]:
    title = f"{table.workload}: points lost of {table.baseline:.1f}"
    yield f'<text class="h" x="8" y="24">{escape(title)}</text>'
    for column, (defence, lost) in enumerate(table.lost.items()):
        x = LEFT + WIDTH * column
        yield f'<text transform="translate({x + WIDTH // 2} {TOP - 8}) rotate(-30)">{escape(defence)}</text>'
        yield from _column(x, lost)
    for row, attack in enumerate(next(iter(table.lost.values()))):
        yield f'<text x="8" y="{TOP + HEIGHT * row + 18}">{escape(attack)}</text>'


def _column(x: int, lost: Mapping[str, float]) -> Iterator[str]:
    for row, points in enumerate(lost.values()):
        y, shade = TOP + HEIGHT * row, round(255 - 155 * min(1.0, max(0.0, points) / 50))
        yield f'<rect x="{x}" y="{y}" width="{WIDTH - 2}" height="{HEIGHT - 2}" fill="rgb(255 {shade} {shade})"/>'
        yield f'<text class="n" x="{x + WIDTH // 2 - 1}" y="{y + 17}">{round(points, 1) + 0.0:.1f}</text>'
