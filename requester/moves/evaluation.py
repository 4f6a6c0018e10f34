"""Evaluates the parameters that a merge gave on the job's held-out rows, in rounds where that is due."""

import math
from collections.abc import Callable

from gradmarket.market.data.manifest import parse_manifest
from gradmarket.market.errors import OutOfMemory, Refused, RunnerTimeout
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules.lifecycle import UNMEASURED
from gradmarket.market.terms import Digest
from requester.context import Context
from requester.live_states import Image


def evaluate_if_due(
    context: Context, spec: JobSpec, number: int, publication: Publication, parameters: Callable[[], Arrays]
) -> tuple[dict[str, float], str]:
    """Returns the metrics and, without any, a reason: a document or data that cannot be evaluated stops the job.

    Figures that are not finite are omitted. A model whose loss is not finite has diverged and gets no figure at all:
    among NaN scores the first class counts as the highest.
    """
    wanted = spec.evaluation
    if wanted is None or not wanted.is_due(number, spec.rounds):
        return {}, ""
    manifest = parse_manifest(context.blobs.read(publication.manifest))
    partition, arrays = manifest.named(wanted.partition), parameters()
    try:
        figures = context.modelling.evaluate(context.blobs, publication, arrays, manifest, partition)
    except (Refused, OutOfMemory, RunnerTimeout) as error:
        return {}, f"round {number} {UNMEASURED}: {error}"[:1000]
    if not math.isfinite(figures["loss"]):
        return {}, ""
    return {name: value for name, value in figures.items() if math.isfinite(value)}, ""


def load_parameter_arrays(context: Context, parameters: Digest) -> Arrays:
    """Returns a blob's arrays, copied into memory, or into a file that is mapped where they are large."""
    with context.blobs.mapped(parameters) as data:
        return Image.of(data, context.settings.data if len(data) > context.settings.merge_memory else None).arrays
