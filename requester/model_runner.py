"""Runs the work that needs torch in child processes like the workers'; torch is not imported here."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from gradmarket.market.data.manifest import Manifest, Partition
from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout, build_layout
from gradmarket.market.job import JobSpec, Publication
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
from requester.merge_turns import SPARE_THREADS

PUBLISHING: Final = "publishing"
"""Names the child that publishes ready architectures, and bounds them."""
BOUNDING: Final = "bounding"
"""Names the child that bounds the documents that requesters uploaded, on shapes alone."""
GIB: Final = 2**30
UNBOUNDED: Final = 2**60
"""Bytes that no pass takes."""
METRICS_S: Final = 30.0
"""Seconds of wall time that a job's metrics of all held-out rows may take; other jobs wait meanwhile."""
AT_ONCE: Final = 1 + SPARE_THREADS
"""Evaluations of rounds that run at once, each in memory of its own."""
Kind = TypeVar("Kind", bound=Runner)


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


class ModelRunner:
    """Reads and bounds published models in a child without data; evaluates each job in a child of its own.

    Calls before a job begins wait for each other, and for no evaluation of a round; of these, AT_ONCE run at once.
    """

    def __init__(self, model_memory: int = RunnerSettings.memory_bytes, step_memory: int = UNBOUNDED) -> None:
        """`model_memory`: bytes of the child; `step_memory`: of a pass of a job's step on its workers."""
        self._runner = Runner(RunnerSettings(memory_bytes=model_memory, bound_bytes=UNBOUNDED))
        self.step_memory = step_memory
        self._lock = threading.RLock()
        settings = RunnerSettings(memory_bytes=model_memory)
        self._evaluating = [(threading.Lock(), Runner(settings)) for _ in range(AT_ONCE)]
        self._reading = threading.Lock()
        self._held_out: OrderedDict[str, dict[str, np.ndarray]] = OrderedDict()
        self.memory = model_memory
        self._lent = threading.Lock(), dict[tuple[type[Runner], int], Runner]()

    def close(self) -> None:
        for _lock, runner in self._evaluating:
            runner.close()
        with self._lent[0]:
            for lent in self._lent[1].values():
                lent.close()
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
        _check_finite(
            tensors.unpack_tensors(blobs.read(model.parameters), loaded.state), [e.name for e in loaded.trainable]
        )
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

    def held_out(self, blobs: Blobs, manifest: Manifest, partition: Partition) -> dict[str, np.ndarray]:
        """Returns the rows of a partition stored here, read by the runner; the last ones are cached. Raises Refused."""
        key = manifest.key(partition)
        with self._reading:
            arrays = self._held_out.pop(key, None)
            if arrays is None:
                arrays = self._runner.read_partition(manifest, partition, blobs.read(partition.digest))
            self._held_out[key] = arrays
            while len(self._held_out) > AT_ONCE:
                self._held_out.popitem(last=False)
            return arrays

    def may_read_partition(self, manifest: Manifest, partition: Partition) -> bool:
        """Whether the reader has enough memory for the partition's file and arrays."""
        arrays = sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in manifest.batch(partition.rows).values()
        )
        return 2 * (partition.bytes + arrays) <= self._runner.settings.memory_bytes

    def evaluate(
        self,
        blobs: Blobs,
        publication: Publication,
        parameters: Arrays,
        manifest: Manifest,
        partition: Partition,
        metrics_s: float = METRICS_S,
        first: bool = False,
    ) -> dict[str, float]:
        """Returns loss and metrics of these parameters on a held-out partition, as far as they are defined on it.

        Metrics of all rows together have `metrics_s` seconds of wall time, and are left out at 0. No metric takes the
        place of the loss. `first`: before the job begins. Raises RunnerTimeout.
        """
        document = blobs.read(publication.evaluation or publication.document)
        batch = self.held_out(blobs, manifest, partition)
        with self._take_runner(publication.digest, first) as runner:
            runner.turn(publication.digest)
            means = runner.evaluate(document, parameters, batch)
            whole = {}
            if publication.metrics is not None and metrics_s > 0:
                whole = runner.measure(blobs.read(publication.metrics), parameters, batch, metrics_s)
        defined = {name: value for name, value in whole.items() if math.isfinite(value)}
        return {**means.values, **defined, "loss": means.loss}

    @contextmanager
    def hold_posting_runner(self) -> Iterator[Runner]:
        """Yields the runner of the work before jobs begin, to one caller at a time."""
        with self._lock:
            yield self._runner

    @contextmanager
    def lend(self, kind: type[Kind], threads: int) -> Iterator[Kind]:
        """Yields a runner of a feature's kind on `threads` threads, to one caller at a time; the last
        one stays warm.
        """
        lock, lent = self._lent
        with lock:
            runner = lent.get((kind, threads))
            if not isinstance(runner, kind):
                for other in lent.values():
                    other.close()
                lent.clear()
                runner = kind(RunnerSettings(memory_bytes=self.memory, threads=threads))
                lent[kind, threads] = runner
            yield runner

    @contextmanager
    def _take_runner(self, job: str, first: bool) -> Iterator[Runner]:
        """Yields the runner of posting, or a free one, best that with the job's child; waits where none is free."""
        if first:
            with self.hold_posting_runner() as runner:
                yield runner
            return
        by_warmth = sorted(self._evaluating, key=lambda one: not one[1].children.is_warm(job))
        free = (one for one in by_warmth if one[0].acquire(blocking=False))
        if (taken := next(free, None)) is None:
            taken = by_warmth[0]
            taken[0].acquire()
        try:
            yield taken[1]
        finally:
            taken[0].release()


def _check_finite(state: Arrays, trained: Iterable[str]) -> None:
    """Raises JobRefused where a trained parameter is not finite: its loss would not be either, from the
    first task on.
    """
    for name in trained:
        if not np.isfinite(state[name]).all():
            raise JobRefused(
                "model.parameters", f"{name} has a value that is not finite: nothing can be trained from it"
            )
