"""A long training that goes on where it was killed: its model is written after each measured loss."""

import json
import time
from pathlib import Path
from typing import Final

from benchmarks.rig.character_rounds import Training
from gradmarket.market.gradient.round_update import ModelState
from graphdoc.tensors import pack_tensors, unpack_tensors

Measured = tuple[list[tuple[int, float]], float]
"""(rounds, held-out loss) and the CPU seconds of all of it."""
PARTS: Final = ("tensors", "memory")


def measured(training: Training, rounds: int, every: int, folder: Path) -> Measured:
    """Trains and measures after each `every` of the rounds, and after the last, from where `folder` stands."""
    points, before, state = read(folder)
    began = time.process_time()
    for done, after in training.states(0, points[-1][0] if points else 0, state):
        if done % every == 0 or done == rounds:
            points.append((done, training.measured(after)))
            write(folder, points, before + time.process_time() - began, after)
    return points, json.loads((folder / "points.json").read_text())["cpu_s"]


def read(folder: Path) -> tuple[list[tuple[int, float]], float, ModelState | None]:
    """Returns the points, the CPU seconds and the model after them; none of them where there is nothing."""
    if not (folder / "points.json").exists():
        return [], 0.0, None
    kept = json.loads((folder / "points.json").read_text())
    tensors, memory = (unpack_tensors((folder / f"{part}-{kept['points'][-1][0]}").read_bytes()) for part in PARTS)
    return [(rounds, loss) for rounds, loss in kept["points"]], kept["cpu_s"], ModelState(tensors, memory)


def write(folder: Path, points: list[tuple[int, float]], cpu_s: float, state: ModelState) -> None:
    """The points come last, so that they never name a model that is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    own = [folder / f"{part}-{points[-1][0]}" for part in PARTS]
    for file, arrays in zip(own, (state.tensors, state.memory), strict=True):
        file.write_bytes(pack_tensors(arrays))
    new = folder / "new"
    new.write_text(json.dumps({"points": points, "cpu_s": cpu_s}))
    new.rename(folder / "points.json")
    for file in folder.glob("*-*"):
        if file not in own:
            file.unlink()
