"""Cost of a computing child's start, forked and by itself, and four jobs at once against one after the other."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median
from typing import Final

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.runner.market_runner import COMPUTING
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.figures import Published
from graphdoc.runner import DocumentRunner, RunnerSettings
from graphdoc.runner.arena import Arena
from graphdoc.runner.children import Warm
from graphdoc.runner.process import ChildProcess

PREFIX = "start.child"
RUNS: Final = sized(10, 2)
JOBS: Final = 4
STEPS: Final = sized(20, 2)
"""Of each job."""
WIDTH, ROWS = sized(512, 16), sized(128, 4)
SETTINGS: Final = RunnerSettings()


def measure() -> Iterator[Figure]:
    alone = [_start(forked=False) for _ in range(sized(5, 1))]
    first, *forked = (_start(forked=True) for _ in range(RUNS + 1))
    with_first = f"the first, with its warm process, {first[1]:.2f} s of wall time"
    yield _figure("cpu_s", [cpu for cpu, _, _ in forked], "s", f"forked; {with_first}", "<= 0.1")
    yield _figure("alone_cpu_s", [cpu for cpu, _, _ in alone], "s", "by an interpreter of its own")
    yield _figure("idle_mb", [size for _, _, size in forked], "MB", "private memory of one that is forked")
    yield _figure("alone_idle_mb", [size for _, _, size in alone], "MB", "of one by itself")
    one_by_one, at_once = (_compute_jobs(order) for order in (sorted(_order()), _order()))
    note = f"{JOBS} jobs of {STEPS} steps in turn, {at_once:.2f} s, over one after the other, {one_by_one:.2f} s"
    yield Figure("start.child_jobs_at_once", at_once / one_by_one, "x", target="<= 1.1", note=note)


def _start(forked: bool) -> tuple[float, float, float]:
    """Returns CPU seconds of a child that is ready, wall time, and its own memory in megabytes."""
    with closing(Arena.create()) as arena:
        before = time.perf_counter()
        child = ChildProcess(SETTINGS, arena, COMPUTING, warm=forked)
        took = time.perf_counter() - before
        try:
            cpu = time.clock_gettime(~child.pid << 3 | 2)  # its clock: clock_getcpuclockid(3)
            return cpu, took, Warm(child).measure_bytes() / 1e6
        finally:
            child.end()


def _order() -> list[int]:
    return [*range(JOBS)] * STEPS


def _compute_jobs(order: Sequence[int]) -> float:
    """Returns the seconds for a step of each of these jobs, from a runner without children."""
    published = [_publish(job) for job in range(JOBS)]
    rng = np.random.default_rng(0)
    batch: dict[str, np.ndarray] = {
        "x": rng.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "y": rng.integers(0, WIDTH, ROWS),
    }
    with DocumentRunner(SETTINGS) as runner:
        before = time.perf_counter()
        for job in order:
            runner.turn(str(job))
            runner.load(published[job].document)
            runner.run(published[job].parameters, batch)
        return time.perf_counter() - before


def _publish(job: int) -> Published:
    torch.manual_seed(job)
    example = torch.randn(4, WIDTH), torch.arange(4)
    layers = (nn.Linear(WIDTH, WIDTH + job), nn.ReLU(), nn.Linear(WIDTH + job, WIDTH))
    return publish_module(nn.Sequential(*layers), compute_classification_loss, example)


def _figure(name: str, values: Sequence[float], unit: str, subject: str, target: str = "") -> Figure:
    note = f"{min(values):.3g} to {max(values):.3g} over {len(values)}, {subject}"
    return Figure(f"start.child_{name}", median(values), unit, target=target, note=note)
