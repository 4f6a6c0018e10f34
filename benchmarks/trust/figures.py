"""The figures of one model's table: points lost by each attack under each defence, and the cost of repeated rounds."""

from collections.abc import Callable, Iterator
from typing import Final

import torch

from benchmarks.figure import Figure
from benchmarks.size import pictures_folder, sized
from benchmarks.trust.attacks import ATTACKS, WAITING
from benchmarks.trust.defences import AUDITED, DEFENCES, OWN
from benchmarks.trust.replay import Course
from benchmarks.trust.run import Setting
from benchmarks.trust.table import Table, fill, picture
from benchmarks.trust.workloads import Trained

PREFIX: Final = "trust.btard."
AIMED: Final = (AUDITED, OWN)
"""Those that are to bear these attacks: the default, and the job of docs/results/attacks.md."""
SMALLEST: Final[tuple[tuple[str, ...], tuple[str, ...]]] = (AUDITED, "mean"), ("silent quorum", "delayed gradient")


def figures(trained: Callable[[], Trained], drawn: str) -> Iterator[Figure]:
    """In BTARD's setting, 7 of 16 workers turn hostile; `drawn`: the file in docs with the table as a picture."""
    torch.set_num_threads(1)
    defences, attacks = sized((tuple(DEFENCES), tuple(name for name in ATTACKS if name not in WAITING)), SMALLEST)
    setting = sized(Setting(), Setting(workers=6, hostile=2, start=1, tries=1))
    for table in fill(trained(), setting, defences, attacks):
        defence = list(table.lost)[-1]
        yield from lost(table, defence)
        yield from spent(table, defence)
    (pictures_folder() / drawn).write_text(picture(table))


def lost(table: Table, defence: str) -> Iterator[Figure]:
    target = "<= 0.5" * (defence in AIMED)
    for attack, points in table.lost[defence].items():
        note = f"of {table.baseline:.1f}"
        yield Figure(_name(table, attack, defence), points, "points lost", target=target, note=note)


def spent(table: Table, defence: str) -> Iterator[Figure]:
    """Cost of repeated rounds, and the end of the attackers; of each attack's runs the worst."""
    for attack, courses in table.courses.get(defence, {}).items():
        name = _name(table, attack, defence)
        again = [(course.accepted + course.diverged) / course.needed - 1 for course in courses]
        audits = [course.audits / course.needed for course in courses]
        yield Figure(f"{name}.again", max(again), "of tasks", note=f"audits {max(audits):.2f} of tasks")
        if attack:
            yield _count_rounds_to_end(name, courses, defence in AIMED)


def _count_rounds_to_end(name: str, courses: list[Course], aimed: bool) -> Figure:
    """Rounds until the colluders are too few for a quorum; where a run never came to that, how many were left."""
    diverged = f"{max(course.diverged for course in courses)} answers diverged"
    if paused := sum(course.paused for course in courses):
        diverged += f"; {paused} of {len(courses)} runs stayed paused"
    gone = [course.gone for course in courses if course.gone is not None]
    if len(gone) == len(courses):
        return Figure(f"{name}.gone", max(gone), "rounds", target="<= 70" * aimed, note=diverged)
    return Figure(
        f"{name}.left", max(course.left for course in courses), "colluders", target="<= 1" * aimed, note=diverged
    )


def _name(table: Table, attack: str, defence: str) -> str:
    words = f"{table.workload}.{attack or 'no attack'}.{defence}"
    return PREFIX + words.replace(",", "").replace("'s", "").replace(" %", "").replace(" ", "_").lower()
