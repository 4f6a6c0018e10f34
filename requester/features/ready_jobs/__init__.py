"""Ready jobs: architectures and a dataset that come with the service, so that a job can be posted with curl alone."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from gradmarket.market.errors import JobRefused, NotFound
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import DocumentModel, ReadyData, ReadyModel
from gradmarket.market.manifest import Manifest
from gradmarket.market.rules.classes import SEEN_S
from gradmarket.market.step import Step
from gradmarket.ready_data import digits
from gradmarket.runner import Runner
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc import tensors
from graphdoc.document.graph import Document
from graphdoc.document.schema import set_arithmetic
from requester.blobs import Blobs
from requester.context import Context
from requester.feature import Feature
from requester.model_runner import PUBLISHING, ModelRunner, PublishedModel
from requester.moves import blob_cleanup
from requester.store.tables import Worker
from requester.store.work import RowReader
from requester.store.workers import KNOWN

MOST_TOLD: Final = 10_000
"""Most workers whose memory is read."""


def publish_ready_model(
    modelling: ModelRunner, blobs: Blobs, spec: JobSpec, manifest: Manifest, room: int | None = None
) -> PublishedModel:
    """Builds a ready architecture for the job's data and publishes it.

    Where the job names no microbatch, a task takes as many rows at once as fit into `room`, the bytes of workers'
    devices: these losses are means over rows. With running statistics it would be another model.
    """
    if not isinstance(spec.model, ReadyModel):
        raise JobRefused("model", "is not a ready architecture")
    if manifest.labelled is None:
        raise JobRefused("model.architecture", "the inputs of a ready one are `x`, and `y` with its `classes`")
    with modelling.hold_posting_runner() as runner:
        runner.turn(PUBLISHING, publishes=True)
        model = runner.publish(
            *(spec.model.architecture, spec.model.arguments, manifest.labelled, spec.seed, spec.precision),
            spec.evaluation.metrics if spec.evaluation else (),
        )
    parameters = blobs.put(tensors.pack_tensors(model.parameters))
    metrics = None if model.metrics is None else blobs.put(model.metrics)
    named = DocumentModel(
        document=blobs.put(set_arithmetic(model.document, spec.document_arithmetic)),
        evaluation=blobs.put(model.evaluation),
        metrics=metrics,
        parameters=parameters,
    )

    def choose_step(runner: Runner, document: Document, layout: Layout) -> Step:
        if room is None or spec.step.microbatch is not None or any(layout.of("buffer")):
            return spec.step
        return choose_microbatch(runner, spec.step, document, min(room, modelling.step_memory))

    return modelling.describe_model(blobs, spec, named, PUBLISHING, choose_step)


def choose_microbatch(runner: Runner, step: Step, document: Document, room: int) -> Step:
    """Returns the step with the most rows at once, halved as often as needed, whose task fits into `room` bytes.

    The step is unchanged where all rows fit, or not even one.
    """
    rows = step.pass_rows
    while rows:
        smaller = step if rows == step.pass_rows else step.model_copy(update={"microbatch": rows})
        bounded = runner.bound(*smaller.pass_sizes, by_row=step.by_row)
        if compute_task_cost(document, bounded, smaller).memory <= room:
            return smaller
        rows //= 2
    return step


def list_reported_memory(reader: RowReader, now: float) -> Sequence[int]:
    """Returns the memory that recently seen workers declare, in bytes: of those whose work was accepted once, if any,
    since newcomers cost nothing to invent.
    """
    there = select(Worker.memory).where(Worker.seen_at > now - SEEN_S, Worker.memory > 0).limit(MOST_TOLD)
    return reader.session.scalars(there.where(KNOWN)).all() or reader.session.scalars(there).all()


def find_common_memory(reported: Sequence[int]) -> int | None:
    """Returns the most bytes that at least half of these workers have; None where none states any."""
    known = sorted((size for size in reported if size > 0), reverse=True)
    return known[(len(known) - 1) // 2] if known else None


class ReadyJobsFeature(Feature):
    name = "ready_jobs"

    def find_manifest(self, spec: JobSpec) -> Manifest | None:
        return digits.build_manifest() if isinstance(spec.data, ReadyData) and digits.is_installed() else None

    def store_data(self, context: Context, spec: JobSpec, manifest: Manifest) -> None:
        if isinstance(spec.data, ReadyData):
            digits.store_partitions(context.blobs.put)
            digests = [part.digest for part in manifest.partitions]
            blob_cleanup.record_uploaded_blobs(context, digests)
            for digest in digests:
                if not context.blobs.has(digest):
                    raise NotFound(f"blob {digest} is gone")

    def publish_model(self, context: Context, spec: JobSpec, manifest: Manifest) -> PublishedModel | None:
        if not isinstance(spec.model, ReadyModel):
            return None
        with context.reading() as reader:
            room = find_common_memory(list_reported_memory(reader, context.clock()))
        return publish_ready_model(context.modelling, context.blobs, spec, manifest, room)
