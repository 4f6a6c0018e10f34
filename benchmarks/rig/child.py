"""A GPT's task on random rows in the runner's child, and the CPU seconds that work takes there."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gradmarket.compute.task_run import TaskRun
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.manifest import Labelled
from gradmarket.market.step import LocalStep
from gradmarket.runner import Runner

SEED = bytes(32)


def task(runner: Runner, arguments: Mapping[str, int], places: int, tokens: int, step: LocalStep) -> TaskRun:
    """`places`: of a row; `tokens`: how many there are."""
    runner.turn("task", publishes=True)
    made = runner.publish("gpt", arguments, Labelled(dtype="int64", shape=(places,), classes=tokens), seed=0)
    document = runner.load(made.document)
    runner.bound(step.rows)
    rng = np.random.default_rng(0)
    batch = {name: rng.integers(0, tokens, (step.steps * step.rows, places)) for name in ("x", "y")}
    return TaskRun(runner.compute, build_layout(document), step, made.parameters, batch, SEED)


def cpu_s(runner: Runner, work: Callable[[], object]) -> float:
    before = _spent(runner)
    work()
    return _spent(runner) - before


def drop(_digest: str, _state: bytes) -> None:
    """A worker writes the state to its disk."""


def _spent(runner: Runner) -> float:
    """CPU seconds of the child and of this process."""
    fields = Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()
