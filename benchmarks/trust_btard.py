"""BTARD's setting: 7 of 16 workers turn hostile; points of accuracy lost by each defence. Draws docs/trust.svg."""

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figure import Figure
from benchmarks.trust.run import Setting
from benchmarks.trust.table import Table, fill, picture
from benchmarks.trust.workloads import characters, digits

PREFIX = "trust.btard."
PICTURE = Path(__file__).parents[1] / "docs" / "trust.svg"


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    tables: list[Table] = []
    for trained in (digits(), characters()):
        for table in fill(trained, Setting()):
            yield worst(table, list(table.lost)[-1])
        tables.append(table)
        PICTURE.write_text(picture(tables))


def worst(table: Table, defence: str) -> Figure:
    """The most that any attack costs under this defence; the others in the note."""
    lost = table.lost[defence]
    note = f"of {table.baseline:.1f}: " + ", ".join(f"{attack} {points:.1f}" for attack, points in lost.items())
    name = PREFIX + f"{table.workload}.{defence}".replace(",", "").replace(" %", "").replace(" ", "_").lower()
    return Figure(name, max(lost.values()), "points lost at worst", note=note)
