"""One warm child from job to job: nothing of an earlier one stays, in memory or anywhere else."""

import tempfile
from pathlib import Path

import numpy as np
import psutil
from handmade import encoded, linear, tensor

from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner

SEED = bytes(32)
WIDTH, ROWS, JOBS = 100_000, 40, 50
ALLOWED_GROWTH = 32 * 2**20


def document(number: int) -> bytes:
    """Another job's: 16 MB of rows a step."""
    raw = linear() | {"metrics": {f"m{number}": 4}}
    data = [one for one in raw["inputs"] if one["name"] == "y"]
    inputs = [tensor("param", "w", [1, WIDTH], grad=True), tensor("data", "x", ["rows", WIDTH]), *data]
    return encoded(raw | {"inputs": inputs})


def left_behind() -> set[str]:
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"))
    return {entry.name for folder in folders if folder.is_dir() for entry in folder.glob("torch*")}


def test_fifty_jobs_take_no_more_memory_than_ten(runner: Runner) -> None:
    before = left_behind()
    state = {"w": np.ones((1, WIDTH), np.float32)}
    batch = {"x": np.ones((ROWS, WIDTH), np.float32), "y": np.zeros((ROWS, 1), np.float32)}
    taken = []
    for number in range(JOBS):
        runner.load(document(number))
        assert runner.compute(state, batch, SEED, GradientStep(rows=ROWS, microbatch=16))["loss"] > 0
        taken.append(psutil.Process(runner.pid).memory_info().rss)
    assert taken[-1] - taken[9] < ALLOWED_GROWTH, [size // 2**20 for size in taken]
    assert left_behind() <= before
