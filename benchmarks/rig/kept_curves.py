"""Costs and losses of a training, round by round: stored as they are measured, so that a killed run goes on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPLICAS = 3
"""Of a task: each fetches the parameters, one uploads its answer."""
TASKS = 4
"""Of a round."""


@dataclass(frozen=True)
class Curve:
    """`steps`: inner steps of a task; `tokens`: of one of them. `points`: (rounds, held-out loss).

    `up`, `first`, `down`: bytes of a task's answer, of whole parameters, and of a replica's downloads in each round
    after its first. `cpu_s`: of all of it.
    """

    name: str
    seed: int
    steps: int
    tokens: int
    up: int
    first: int
    down: int
    points: Sequence[tuple[int, float]]
    cpu_s: float

    def uploads(self, rounds: int) -> int:
        """Bytes of all workers."""
        return TASKS * rounds * self.up

    def total(self, rounds: int) -> int:
        """Bytes up and down. The same workers have a task in every round; each begins with whole parameters."""
        return self.uploads(rounds) + TASKS * REPLICAS * (self.first + (rounds - 1) * self.down)

    def reached(self, loss: float) -> int | None:
        """Returns the first measured round with this loss or less."""
        return next((rounds for rounds, measured in self.points if measured <= loss), None)

    @property
    def rounds(self) -> int:
        return self.points[-1][0]

    @property
    def final(self) -> float:
        return self.points[-1][1]


class Kept:
    """A file of curves, a line each, under the text of their settings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else ()
        self._found = {line["of"]: Curve(**line["curve"]) for line in map(json.loads, lines)}

    def curve(self, of: str, measured: Callable[[], Curve]) -> Curve:
        """As kept, else measured and kept."""
        if of not in self._found:
            self._found[of] = measured()
            with self._path.open("a") as lines:
                lines.write(json.dumps({"of": of, "curve": asdict(self._found[of])}) + "\n")
        return self._found[of]

    def end(self, result: Path) -> None:
        """Moves all to a file of results, so that the next run measures anew."""
        result.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(asdict(curve)) for curve in self._found.values())
        result.write_text(f"[\n{lines}\n]\n")
        self._path.unlink()


def curves(result: Path) -> list[Curve]:
    return [Curve(**curve) for curve in json.loads(result.read_text())]
