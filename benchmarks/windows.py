"""Cost of an audit of two windows over the whole task, and of windows for the worker.

CPU seconds of the runner's child and of this process, which packs and hashes the states. A GPT of 0.9 million
parameters, AdamW, 30 inner steps of 16 rows. Each figure is the median of its runs in one process.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rig.child import cpu_s, drop, task
from benchmarks.size import sized
from gradmarket.compute.task_run import TaskRun
from gradmarket.market.features import windows as task_windows
from gradmarket.market.step import InnerOptimizer, LocalStep
from gradmarket.market.terms import Digest
from gradmarket.market.wire.poll import digest_of
from gradmarket.runner import Runner, RunnerSettings

PREFIX = "audit.window"
STEPS, ROWS, PLACES, CHARACTERS = sized((30, 16, 64, 90), (15, 2, 8, 9))
WINDOWS = (1, 5)
RUNS = sized(5, 2)
GPT = {"depth": sized(4, 1), "width": sized(128, 16), "heads": 4}
STEP = LocalStep(kind="local", steps=STEPS, rows=ROWS, optimizer=InnerOptimizer(name="adamw", lr=3e-3))


def measure() -> Iterator[Figure]:
    with Runner(RunnerSettings(seconds=600.0)) as runner:
        plain = task(runner, GPT, PLACES, CHARACTERS, STEP)
        plain.whole(drop)  # the child's first pass loads its kernels
        taken = median(cpu_s(runner, lambda: plain.whole(drop)) for _ in range(RUNS))
        for window in WINDOWS:
            yield from _figures(runner, plain, window, taken)


def _figures(runner: Runner, plain: TaskRun, window: int, taken: float) -> Iterator[Figure]:
    step = plain.step.model_copy(update={"window": window})
    cut = replace(plain, step=step, layout=replace(plain.layout, leaves=step.leaves))
    states: dict[Digest, bytes] = {}
    _, leaves = cut.whole(states.__setitem__)
    whole = median(cpu_s(runner, lambda: cut.whole(drop)) for _ in range(RUNS))

    def replayed(drawn: int) -> float:
        published = [None if number == drawn else digest_of(leaf) for number, leaf in enumerate(leaves)]
        return cpu_s(runner, lambda: cut.replay(drawn, published, states.__getitem__))

    drawn = np.linspace(0, step.leaves - 1, RUNS).astype(int)
    share, computed = (
        median(replayed(int(number)) for number in drawn) / taken,
        task_windows.compute_repeated_share(STEPS, window),
    )
    note = f"computed {computed:.4f}; {taken:.2f} s of CPU a task"
    yield Figure(f"{PREFIX}.share.j{window}", share, "", "(J + last) / H", share / computed, note=note)
    size = max(map(len, states.values())) / 1e6
    note = f"{step.leaves} states of {size:.1f} MB"
    yield Figure(f"{PREFIX}.cost.j{window}", whole / taken, "", "without windows", whole / taken, note=note)
