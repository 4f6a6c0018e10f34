"""The referee's own child: knows a task's operations by its document, and computes one of them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job import Publication
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.messages import Offer
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.sampling import partition_of, task_rows
from gradmarket.market.wire.poll import digest_of
from gradmarket.runner import RunnerSettings
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner
from gradmarket.runner.market_runner import TaskInputs
from requester.context import Context
from requester.dataset import OURS
from requester.features.row_checks.partition_rows import PartitionRows
from requester.model_runner import ModelRunner, RunnerPart
from requester.moves.replay import load_parameter_arrays

ROWS: Final = ", rows"
"""How the name of an operation that reads rows ends (disputes.traced.plan)."""


@dataclass(frozen=True)
class RefereeCourse:
    """A task as its referee sees it: the course of its operations, and whether the task's rows are here."""

    course: TracedCourse
    has_rows: bool

    def check_computable(self, subject: str) -> None:
        """Raises Refused where this operation reads rows that are not here."""
        if subject.endswith(ROWS) and not self.has_rows:
            raise Refused(f"{subject} are not stored here")

    def is_across(self, classes: Sequence[str]) -> bool:
        """Returns whether answers of these classes can differ by rounding alone, from each other or from this
        machine's."""
        own = list_checked_classes(self.course.runner.determinism_class())
        return len(set(classes)) > 1 or any(each not in own for each in classes)


class LentRunner(RunnerPart):
    """The child that traces tasks for a referee."""

    def __init__(self, modelling: ModelRunner) -> None:
        super().__init__(modelling)
        self._lock = threading.RLock()
        self._runner: TracingRunner | None = None

    def close(self) -> None:
        with self._lock:
            if self._runner is not None:
                self._runner.close()

    @contextmanager
    def lend(self, threads: int) -> Iterator[TracingRunner]:
        """Yields the runner on `threads` threads, to one caller at a time; the last one stays warm."""
        with self._lock:
            if self._runner is None or self._runner.settings.threads != threads:
                self.close()
                settings = RunnerSettings(memory_bytes=self.modelling.memory, threads=threads)
                self._runner = TracingRunner(settings)
            yield self._runner


@contextmanager
def open_referee_course(
    context: Context, publication: Publication, offer: Offer, threads: int
) -> Iterator[RefereeCourse]:
    """Raises Refused where the task's parameters are not here any more."""
    with context.modelling.find_part(LentRunner).lend(threads) as runner:
        runner.turn(publication.digest)
        if runner.current != publication.document:
            runner.load(context.blobs.read(publication.document))
        state = load_parameter_arrays(context, digest_of(offer.parameters))
        manifest, spec = parse_manifest(context.blobs.read(publication.manifest)), publication.spec
        partition = partition_of(manifest, spec, spec.place(offer.round, offer.task))
        rows = task_rows(manifest, spec, offer.round, offer.task)
        reader, arrays = context.modelling.find_part(PartitionRows), None
        if partition.link.startswith(OURS) and reader.may_read_partition(manifest, partition):
            with suppress(NotFound):
                arrays = reader.held_out(context.blobs, manifest, partition)
        if arrays is None:  # zeros in place of rows that are stored elsewhere
            batch = {name: np.zeros(shape, dtype) for name, (shape, dtype) in manifest.batch(len(rows)).items()}
        else:
            batch = {name: np.ascontiguousarray(array[rows]) for name, array in arrays.items()}
        has_rows = arrays is not None
        del arrays  # a whole partition: the course needs its own rows alone
        inputs = TaskInputs(rows, state, batch, offer.seed, spec.step_in(offer.round), spec.uplink.codec)
        yield RefereeCourse(TracedCourse(runner, inputs), has_rows)
