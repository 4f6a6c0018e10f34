"""What needs torch is asked of the runner, the child process that workers compute in; none is imported here."""

import threading
from dataclasses import dataclass

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload import Layout
from gradmarket.market.job import DocumentModel, JobSpec, Partition, Publication, ReadyModel
from gradmarket.market.model import tensors
from gradmarket.market.terms import Digest
from gradmarket.requester.blobs import Blobs
from gradmarket.requester.readydata import digits
from gradmarket.runner import Runner, RunnerSettings


@dataclass(frozen=True)
class Model:
    """A published model by its blobs, and what one task of it costs."""

    document: Digest
    evaluation: Digest | None
    parameters: Digest
    layout: Layout
    counters: tuple[str, ...]
    flops: int
    peak_bytes: int


class Modelling:
    """One warm child for publishing and evaluating; calls wait for each other."""

    def __init__(self, settings: RunnerSettings | None = None) -> None:
        self._runner = Runner(settings or RunnerSettings())
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._runner.close()

    def ready(self, blobs: Blobs, spec: JobSpec) -> Model:
        """Builds a ready architecture for the job's data and publishes it."""
        if not isinstance(spec.model, ReadyModel):
            raise JobRefused("model", "names no ready architecture")
        with self._lock:
            made = self._runner.publish(
                spec.model.architecture,
                spec.model.arguments,
                input_shape=digits.SHAPE,
                classes=digits.CLASSES,
                seed=spec.seed,
            )
        parameters = blobs.put(tensors.pack(made.parameters))
        return self._described(blobs, spec, blobs.put(made.document), blobs.put(made.evaluation), parameters)

    def uploaded(self, blobs: Blobs, spec: JobSpec, model: DocumentModel) -> Model:
        """Checks a document that its requester uploaded; raises DocumentRefused or TensorsRefused."""
        return self._described(blobs, spec, model.document, model.evaluation, model.parameters)

    def _described(
        self, blobs: Blobs, spec: JobSpec, document: Digest, evaluation: Digest | None, parameters: Digest
    ) -> Model:
        with self._lock:
            info = self._runner.load(blobs.read(document))
            bound = self._runner.bound(spec.step.microbatch or spec.step.rows)
        tensors.unpack(blobs.read(parameters), info.document.state)
        passes = -(-spec.step.rows // bound.rows)
        return Model(
            document=document,
            evaluation=evaluation,
            parameters=parameters,
            layout=info.layout,
            counters=info.document.counters,
            flops=bound.operations * passes,
            peak_bytes=bound.peak_bytes,
        )

    def evaluate(
        self, blobs: Blobs, publication: Publication, parameters: bytes, partition: Partition
    ) -> dict[str, float]:
        """Loss and metrics of these parameters on a held-out partition."""
        document = blobs.read(publication.evaluation or publication.document)
        batch = tensors.unpack(blobs.read(partition.digest))
        with self._lock:
            metrics = self._runner.evaluate(document, tensors.unpack(parameters), batch)
        return {"loss": metrics.loss, **metrics.values}
