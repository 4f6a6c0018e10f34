"""A worker as it is, whose steps take longer: `python -m benchmarks.rig.slowed MARKET FOLDER SECONDS`."""

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import HttpUrl

from gradmarket.compute.task_run import Arrays, Compute
from gradmarket.market.step import Step
from gradmarket.worker.journal import Journal
from gradmarket.worker.run import run
from gradmarket.worker.settings import WorkerSettings


def slowed(compute: Compute, seconds: float) -> Compute:
    def step(state: Arrays, batch: Arrays, seed: bytes, chosen: Step) -> dict[str, np.ndarray]:
        time.sleep(seconds)
        return compute(state, batch, seed, chosen)

    return step


if __name__ == "__main__":
    market, folder, seconds = sys.argv[1:]
    steps = partial(slowed, seconds=float(seconds))
    run(WorkerSettings(market=HttpUrl(market), data=Path(folder), wait_s=20.0), steps, Journal(as_json=True))
