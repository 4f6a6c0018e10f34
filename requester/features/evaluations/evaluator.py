"""Evaluates merged parameters on held-out rows, each job in a child of its own."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import Publication
from gradmarket.market.manifest import Manifest, Partition
from gradmarket.runner import Runner, RunnerSettings
from requester.blobs import Blobs
from requester.features.row_checks.partition_rows import AT_ONCE, PartitionRows
from requester.model_runner import ModelRunner, RunnerPart

METRICS_S: Final = 30.0
"""Seconds of wall time that a job's metrics of all held-out rows may take; other jobs wait meanwhile."""


class Evaluator(RunnerPart):
    """AT_ONCE evaluations run at once, each in memory of its own; none waits for a job that is published."""

    def __init__(self, modelling: ModelRunner) -> None:
        super().__init__(modelling)
        settings = RunnerSettings(memory_bytes=modelling.memory)
        self._evaluating = [(threading.Lock(), Runner(settings)) for _ in range(AT_ONCE)]

    def close(self) -> None:
        for _lock, runner in self._evaluating:
            runner.close()

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
        batch = self.modelling.find_part(PartitionRows).held_out(blobs, manifest, partition)
        with self._take_runner(publication.digest, first) as runner:
            runner.turn(publication.digest)
            means = runner.evaluate(document, parameters, batch)
            whole = {}
            if publication.metrics is not None and metrics_s > 0:
                whole = runner.measure(blobs.read(publication.metrics), parameters, batch, metrics_s)
        defined = {name: value for name, value in whole.items() if math.isfinite(value)}
        return {**means.values, **defined, "loss": means.loss}

    @contextmanager
    def _take_runner(self, job: str, first: bool) -> Iterator[Runner]:
        """Yields the runner of posting, or a free one, best that with the job's child; waits where none is free."""
        if first:
            with self.modelling.hold_posting_runner() as runner:
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
