"""Ratio of documents' bounds to the use of their children: memory beyond an idle child's, and operations.

Every model of tests/models at two numbers of rows. The bound is the cost of one task, as a worker reads it; the peak
is the child's largest resident size (VmHWM). Memory below the peak would be no bound; above 1.3 times of it small
workers decline without need.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc.cost import Cost
from graphdoc.document.graph import Document
from tests.models.zoo import ZOO

PREFIX = "bounds."
SEED: Final = bytes(range(32))
TARGET: Final = "<= 1.3"
ROWS: Final = sized((64, 512), (2,))
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """`data` is a batch of any size, repeated to those that are asked for."""

    name: str
    document: bytes
    state: Arrays
    data: Arrays


@dataclass(frozen=True)
class Taken:
    cost: Cost
    idle: int
    peak: int
    seconds: float

    @property
    def whole(self) -> float:
        """The child's stated bound over its use, both of its whole memory: the bytes that a worker must have free."""
        return self.cost.memory / self.peak

    @property
    def ratio(self) -> float:
        """The same, beyond an idle child's memory."""
        return (self.cost.memory - self.idle) / (self.peak - self.idle)


def measure() -> Iterator[Figure]:
    least, most = math.inf, 0.0
    for model in islice(models(), sized(None, 1)):
        for rows in ROWS:
            taken = task(model, rows)
            least, most = min(least, taken.whole), max(most, taken.whole)
            yield figure(f"bounds.memory.{model.name}.r{rows}", taken)
    yield Figure("bounds.memory.least", least, "of what was taken", target=">= 1.0", note="of all the above")
    yield Figure("bounds.memory.most", most, "of what was taken", target=TARGET, note="of all the above")


def figure(name: str, taken: Taken) -> Figure:
    note = (
        f"{taken.peak >> 20} MiB taken, {taken.cost.memory >> 20} told; {taken.ratio:.2f} over an idle child; "
        f"{taken.cost.operations / taken.seconds / 1e9:.2f} GFLOP/s of {taken.seconds:.2f} s"
    )
    return Figure(name, taken.whole, "of what was taken", target=TARGET, note=note)


def models() -> Iterator[Model]:
    for name, case in ZOO.items():
        document, state = case.document()
        yield Model(
            name.replace(" ", "-").replace("'", ""),
            document,
            {key: tensor.numpy() for key, tensor in state.items()},
            {key: tensor.numpy() for key, tensor in case.data.items()},
        )


def task(model: Model, rows: int) -> Taken:
    """Two tasks of one pass, bounded and computed by a fresh child, as a worker does, and an evaluation."""
    step = GradientStep(rows=rows)
    with Runner(RunnerSettings(memory_bytes=16 * 2**30, seconds=600.0)) as runner:
        document = runner.load(model.document)
        bound = runner.bound(*step.pass_sizes)
        batch = repeated(document, model.data, rows)
        began = time.perf_counter()
        runner.compute(model.state, batch, SEED, step)
        seconds = time.perf_counter() - began
        runner.compute(model.state, batch, SEED, step)  # beside the remains of the first
        runner.evaluate(model.document, model.state, batch)
        return Taken(compute_task_cost(document, bound, step), bound.idle_bytes, peak(runner.pid), seconds)


def repeated(document: Document, data: Arrays, rows: int) -> Arrays:
    """Returns a batch of `rows` rows: each axis of the model's own data, repeated."""
    batch = {}
    for name, (shape, dtype) in document.batch(rows, {}).items():
        array = data[name]
        for axis, size in enumerate(shape):
            array = array.take(np.arange(size) % array.shape[axis], axis)
        batch[name] = np.ascontiguousarray(array, dtype)
    return batch


def peak(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
