"""Checks of a posted job's rows, and of the first step on them, before its money moves.

Partitions that are stored elsewhere, or do not fit into this machine's memory, are checked by the workers that read
them (market.rules.faults).
"""

from dataclasses import replace
from typing import Final

import numpy as np

from gradmarket.market.errors import JobRefused, Refused, RunnerFailed
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import PrivateData, ReadyData, ReadyModel
from gradmarket.market.manifest import Manifest, Partition
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.step import GradientStep
from graphdoc import tensors
from graphdoc.figures import Range, Ranges
from requester.blobs import Blobs
from requester.context import Context
from requester.dataset import OURS
from requester.feature import Feature
from requester.features.row_checks.partition_rows import PartitionRows
from requester.model_runner import ModelRunner, PublishedModel
from requester.store.remembered import Remembered

FIRST_STEP: Final = 3 * 10**10
"""Operations of the forward pass of a first step that is computed here before a job begins: seconds."""
_IN_ORDER: Final = Remembered[bool](100_000)
"""Partitions that were found in order, by their contents and the ranges allowed in them."""


def check_rows(blobs: Blobs, modelling: ModelRunner, spec: JobSpec, manifest: Manifest, ranges: Ranges) -> None:
    """Checks that every partition stored here has the declared arrays, and no label or index that the model refuses.

    The confined reader reads the partitions one after another, as far as its memory suffices; a good one is not read
    again. The ready dataset needs no check, and partitions that the job does not use stay unread: they may be unserved,
    and another's. Raises JobRefused.
    """
    if isinstance(spec.data, ReadyData):
        return
    measured = [manifest.named(spec.evaluation.partition)] if spec.evaluation else []
    rows = modelling.find_part(PartitionRows)
    declared = {name: (Range(0, entry.classes, None),) for name, entry in manifest.inputs.items() if entry.classes}
    allowed: Ranges = {**declared, **ranges}
    for partition in (*list_training_partitions(manifest, spec), *measured):
        key = f"{manifest.key(partition)} {sorted(allowed.items())}"
        here = partition.link.startswith(OURS) and rows.may_read_partition(manifest, partition)
        if not here or _IN_ORDER.peek(key):
            continue
        field = f"data.manifest.partitions.{partition.name}"
        try:
            with modelling.hold_posting_runner() as runner:
                outside = runner.check_partition(manifest, partition, blobs.read(partition.digest), allowed)
        except (Refused, RunnerFailed) as error:
            raise JobRefused(field, f"it cannot be read: {error}") from error
        if outside is not None:
            raise JobRefused(field, outside.describe())
        _IN_ORDER.remember(key, True)


def list_taken_ranges(spec: JobSpec, model: PublishedModel) -> Ranges:
    """Returns the ranges of whole numbers that the model takes. A ready one weighs rows alike: it ignores no label."""
    if model.layout.weighed or not isinstance(spec.model, ReadyModel):
        return model.ranges
    return {name: [replace(one, ignored=None) for one in each] for name, each in model.ranges.items()}


def compute_first_step(
    modelling: ModelRunner,
    blobs: Blobs,
    publication: Publication,
    manifest: Manifest,
    partition: Partition,
    most: float = FIRST_STEP,
) -> None:
    """Raises JobRefused where the loss or gradient of the first rows of a partition stored here is not finite.

    The job's own child computes the rows of one pass. A forward pass of more than `most` operations, or a step that
    exceeds this machine's memory or time, is left to the workers.
    """
    rows = min(partition.rows, publication.spec.step.pass_rows)
    with modelling.hold_posting_runner() as runner:
        arrays = runner.read_partition(manifest, partition, blobs.read(partition.digest))
        runner.turn(publication.digest)
        document = runner.load(blobs.read(publication.document))
        if runner.bound_evaluation(blobs.read(publication.document), rows).operations > most:
            return
        state = tensors.unpack_tensors(blobs.read(publication.parameters), document.state)
        batch = {name: array[:rows] for name, array in arrays.items()}
        try:
            answer = runner.compute(state, batch, bytes(32), GradientStep(rows=rows))
        except RunnerFailed:
            return
    where = f"on the first {rows} rows of {partition.name}"
    if not np.isfinite(answer["loss"]):
        complaint = f"its loss {where} is {float(answer['loss'])}: nothing can be trained on it"
        raise JobRefused("model.document", complaint)
    for name in (entry.name for entry in document.trainable):
        if not np.isfinite(answer[name]).all():
            complaint = f"the gradient of {name} {where} is not finite: look for a root, a logarithm or a division at 0"
            raise JobRefused("model.document", complaint)


class RowChecksFeature(Feature):
    name = "row_checks"

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        check_rows(context.blobs, context.modelling, spec, manifest, list_taken_ranges(spec, model))

    def check_publication(self, context: Context, publication: Publication, manifest: Manifest) -> None:
        # an uploaded document has a loss and a gradient on the first rows stored here
        spec = publication.spec
        if isinstance(spec.model, ReadyModel) or isinstance(spec.data, PrivateData):
            return
        first = next(iter(list_training_partitions(manifest, spec)), None)
        if first is None or not context.blobs.has(first.digest):
            return
        if context.modelling.find_part(PartitionRows).may_read_partition(manifest, first):
            compute_first_step(context.modelling, context.blobs, publication, manifest, first)
