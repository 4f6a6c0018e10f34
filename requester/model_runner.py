"""Runs the work that needs torch in child processes like the workers'; torch is not imported here."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import numpy as np

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout, build_layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import DocumentModel
from gradmarket.market.step import Step
from gradmarket.market.terms import Digest
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc import tensors
from graphdoc.cost import pass_sizes
from graphdoc.document.graph import Document
from graphdoc.figures import Ranges
from graphdoc.tensors import Expected
from requester.blobs import Blobs

PUBLISHING: Final = "publishing"
"""Names the child that publishes ready architectures, and bounds them."""
BOUNDING: Final = "bounding"
"""Names the child that bounds the documents that requesters uploaded, on shapes alone."""
GIB: Final = 2**30
UNBOUNDED: Final = 2**60
"""Bytes that no pass takes."""
Part = TypeVar("Part", bound="RunnerPart")


@dataclass(frozen=True)
class PublishedModel:
    """A published model's blobs, and the cost of one task of it."""

    document: Digest
    evaluation: Digest | None
    metrics: Digest | None
    parameters: Digest
    layout: Layout
    counters: tuple[str, ...]
    inputs: Expected
    """Shapes and types that the document reads of one row, the row's own dimension included."""
    ranges: Ranges
    """Ranges of the whole numbers that it reads, by input."""
    flops: int
    peak_bytes: int
    child: str
    """The child that knows the documents: PUBLISHING or BOUNDING."""
    step: Step
    """The job's, with a microbatch where none was named and all rows at once do not fit."""


class RunnerPart:
    """The children that a feature runs beside those of a ModelRunner."""

    def __init__(self, modelling: "ModelRunner") -> None:
        self.modelling = modelling

    def close(self) -> None:
        """Ends them; called as the ModelRunner is closed."""


class ModelRunner:
    """Reads and bounds published models in a child without data, before jobs begin: one call at a time.

    Features run other children beside it, in parts of this.
    """

    def __init__(self, model_memory: int = RunnerSettings.memory_bytes, step_memory: int = UNBOUNDED) -> None:
        """`model_memory`: bytes of the child; `step_memory`: of a pass of a job's step on its workers."""
        self._runner = Runner(RunnerSettings(memory_bytes=model_memory, bound_bytes=UNBOUNDED))
        self.step_memory = step_memory
        self._lock = threading.RLock()
        self.memory = model_memory
        self._part_lock = threading.Lock()
        self._parts: dict[type[RunnerPart], RunnerPart] = {}

    def close(self) -> None:
        for part in list(self._parts.values()):
            part.close()
        with self._lock:
            self._runner.close()

    def describe_model(
        self,
        blobs: Blobs,
        spec: JobSpec,
        model: DocumentModel,
        child: str = BOUNDING,
        choose_step: Callable[[Runner, Document, Layout], Step] | None = None,
    ) -> PublishedModel:
        """Checks and bounds a document; raises DocumentRefused or TensorsRefused.

        `child` knows the documents; `choose_step` takes the place of the job's step.
        """
        with self._lock:
            self._runner.turn(child, publishes=child == PUBLISHING)
            loaded = self._runner.load(blobs.read(model.document))
            layout = build_layout(loaded)
            step = spec.step if choose_step is None else choose_step(self._runner, loaded, layout)
            bounded = self._runner.bound(*step.pass_sizes, by_row=step.by_row)
            self._check_step_memory(step, bounded.peak_bytes)
            estimate = compute_task_cost(loaded, bounded, step)
            ranges = self._runner.ranges(step.pass_rows)
        state = tensors.unpack_tensors(blobs.read(model.parameters), loaded.state)
        for name in (entry.name for entry in loaded.trainable):
            if not np.isfinite(state[name]).all():
                infinite = f"{name} has a value that is not finite: nothing can be trained from it"
                raise JobRefused("model.parameters", infinite)
        if loaded.precision != spec.precision:
            raise JobRefused("precision", f"{spec.precision}, and the document computes in {loaded.precision}")
        if loaded.arithmetic != spec.document_arithmetic:
            difference = f"{spec.arithmetic}, and the document computes in {loaded.arithmetic} arithmetic"
            raise JobRefused("arithmetic", f"{difference}: set it to {loaded.arithmetic}")
        return PublishedModel(
            document=model.document,
            evaluation=model.evaluation,
            metrics=model.metrics,
            parameters=model.parameters,
            layout=layout,
            counters=loaded.counters,
            inputs=loaded.batch(1),
            ranges=ranges,
            flops=estimate.operations,
            peak_bytes=estimate.memory,
            child=child,
            step=step,
        )

    def _check_step_memory(self, step: Step, peak: int) -> None:
        """Raises JobRefused where a pass of the current document takes too much, with the microbatch that would fit."""
        if peak <= self.step_memory:
            return
        takes = f"a pass of {step.pass_rows} rows takes {peak / GIB:.3g} GiB, and workers' devices have at most"
        takes += f" {self.step_memory / GIB:.3g} GiB (the service's GRADMARKET_STEP_MEMORY)"
        rows = step.pass_rows
        while rows and peak > self.step_memory:
            rows //= 2
            peak = self._runner.bound(*pass_sizes(step.room, rows), by_row=step.by_row).peak_bytes if rows else peak
        raise JobRefused("step.microbatch", f"{takes}: {f'set it to {rows}' if rows else 'take a smaller model'}")

    def find_part(self, kind: type[Part]) -> Part:
        """Returns a feature's part, `kind(self)`, made at the first call."""
        with self._part_lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self)
            return cast(Part, self._parts[kind])

    @property
    def reader(self) -> Runner:
        """Returns the same runner for reading partitions, which waits for nobody."""
        return self._runner

    @contextmanager
    def hold_posting_runner(self) -> Iterator[Runner]:
        """Yields the runner of the work before jobs begin, to one caller at a time."""
        with self._lock:
            yield self._runner
