"""A real worker but for its steps: `python -m benchmarks.rig.paced MARKET FOLDER SECONDS [replayed]`.

Each step sleeps for SECONDS, as on an accelerator beside this machine's processor. Then it is computed; with `replayed`
only the first one is, for names and shapes, and every later one repeats its numbers with a loss of the task's own: so
replicas of a task agree, and no two tasks have the same bytes.
"""

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import HttpUrl

from gradmarket.compute.task_run import Compute
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.step import Step
from worker.journal import Journal
from worker.run import run_worker
from worker.settings import WorkerSettings


def paced(compute: Compute, seconds: float) -> Compute:
    def step(state: Arrays, batch: Arrays, seed: bytes, chosen: Step) -> dict[str, np.ndarray]:
        time.sleep(seconds)
        return compute(state, batch, seed, chosen)

    return step


def replaying(compute: Compute) -> Compute:
    recorded: dict[str, np.ndarray] = {}

    def replay(state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        if not recorded:
            drawn = np.random.default_rng(0)
            for name, tensor in compute(state, batch, seed, step).items():
                recorded[name] = drawn.standard_normal(tensor.shape, np.float32) * np.float32(1e-3)
        loss = np.asarray(int.from_bytes(seed[:3], "little") / 2**24, np.float32)
        return recorded | {"loss": loss}

    return replay


if __name__ == "__main__":
    market, folder, seconds, *replayed = sys.argv[1:]
    steps = partial(paced, seconds=float(seconds))
    settings = WorkerSettings(market=HttpUrl(market), data=Path(folder), wait_s=20.0)
    run_worker(settings, (lambda compute: steps(replaying(compute))) if replayed else steps, Journal(as_json=True))
