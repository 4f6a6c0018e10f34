"""What an audit of two windows costs over the whole task, and what windows cost the worker.

CPU seconds of the runner's child and of this process, which packs and hashes the states. A GPT of 0.9 million
parameters, AdamW, 30 inner steps of 16 rows. Each figure is the median of its runs in one process.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from gradmarket.compute.task_run import TaskRun
from gradmarket.market.data.manifest import Labelled
from gradmarket.market.model.layout import layout
from gradmarket.market.rules import task_windows
from gradmarket.market.step import InnerOptimizer, LocalStep
from gradmarket.market.terms import Digest
from gradmarket.market.wire import digest_of
from gradmarket.runner import Runner, RunnerSettings

PREFIX = "audit.window"
STEPS, ROWS, PLACES, CHARACTERS = 30, 16, 64, 90
WINDOWS = (1, 5)
RUNS = 5
SEED = bytes(32)
GPT = {"depth": 4, "width": 128, "heads": 4}


def measure() -> Iterator[Figure]:
    with Runner(RunnerSettings(seconds=600.0)) as runner:
        task = _task(runner)
        task.whole(_drop)  # the child's first pass loads its kernels
        plain = median(_cpu(runner, lambda: task.whole(_drop)) for _ in range(RUNS))
        for window in WINDOWS:
            yield from _figures(runner, task, window, plain)


def _figures(runner: Runner, task: TaskRun, window: int, plain: float) -> Iterator[Figure]:
    step = task.step.model_copy(update={"window": window})
    cut = replace(task, step=step, layout=replace(task.layout, leaves=step.leaves))
    states: dict[Digest, bytes] = {}
    _, leaves = cut.whole(states.__setitem__)
    whole = median(_cpu(runner, lambda: cut.whole(_drop)) for _ in range(RUNS))

    def replayed(drawn: int) -> float:
        told = [None if number == drawn else digest_of(leaf) for number, leaf in enumerate(leaves)]
        return _cpu(runner, lambda: cut.replay(drawn, told, states.__getitem__))

    drawn = np.linspace(0, step.leaves - 1, RUNS).astype(int)
    share, computed = median(replayed(int(number)) for number in drawn) / plain, task_windows.share(STEPS, window)
    note = f"computed {computed:.4f}; {plain:.2f} s of CPU a task"
    yield Figure(f"{PREFIX}.share.j{window}", share, "", "(J + last) / H", share / computed, note=note)
    size = max(map(len, states.values())) / 1e6
    note = f"{step.leaves} states of {size:.1f} MB"
    yield Figure(f"{PREFIX}.cost.j{window}", whole / plain, "", "without windows", whole / plain, note=note)


def _task(runner: Runner) -> TaskRun:
    runner.turn("windows", publishes=True)
    made = runner.publish("gpt", GPT, Labelled(dtype="int64", shape=(PLACES,), classes=CHARACTERS), seed=0)
    info = runner.load(made.document)
    runner.bound(ROWS)
    step = LocalStep(kind="local", steps=STEPS, rows=ROWS, optimizer=InnerOptimizer(name="adamw", lr=3e-3))
    rng = np.random.default_rng(0)
    batch = {name: rng.integers(0, CHARACTERS, (STEPS * ROWS, PLACES)) for name in ("x", "y")}
    return TaskRun(runner.compute, layout(info.document), step, made.parameters, batch, SEED)


def _cpu(runner: Runner, work: Callable[[], object]) -> float:
    before = _spent(runner)
    work()
    return _spent(runner) - before


def _spent(runner: Runner) -> float:
    """CPU seconds of the child and of this process."""
    fields = Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def _drop(_digest: Digest, _state: bytes) -> None:
    """A worker writes the state to its disk."""
