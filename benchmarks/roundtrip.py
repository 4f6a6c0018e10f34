"""What the runner adds to a step: the time of a question whose answer takes next to nothing to compute."""

import statistics
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import psutil

from benchmarks.figure import Figure
from gradmarket.market.data.manifest import Labelled
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner

PREFIX = "runner."
ASKED: Final = 300
ROWS: Final = 2
SEED: Final = bytes(32)


def measure() -> Iterator[Figure]:
    with Runner() as runner:
        data = Labelled(dtype="float32", shape=(16,), classes=4)
        runner.turn("publishing", publishes=True)
        made = runner.publish("mlp", {"hidden": [16]}, data, seed=0)
        runner.turn("job")
        runner.load(made.document)
        x = np.random.default_rng(0).standard_normal((ROWS, 16)).astype(np.float32)
        batch, step = {"x": x, "y": np.arange(ROWS) % 4}, GradientStep(rows=ROWS)
        taken, cpu = [], _cpu_seconds(runner)
        for _ in range(ASKED):
            began = time.perf_counter()
            runner.compute(made.parameters, batch, SEED, step)
            taken.append(1000 * (time.perf_counter() - began))
        spent = 1000 * (_cpu_seconds(runner) - cpu) / ASKED
    wall = f"wall {min(taken):.2f} to {max(taken):.1f} ms, median {statistics.median(taken):.2f}"
    note = f"CPU time of both processes, as the machine is shared, a step of {ROWS} rows and all; {wall}"
    yield Figure("runner.roundtrip_ms", spent, "ms", target="<= 2", note=note)


def _cpu_seconds(runner: Runner) -> float:
    """Of this process and of the child."""
    child = psutil.Process(runner.pid).cpu_times()
    return time.process_time() + child.user + child.system
