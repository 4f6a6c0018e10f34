"""Evaluates the parameters that a merge gave on the job's held-out rows, where that is due."""

from collections.abc import Callable

from gradmarket.market.data.manifest import parse_manifest
from gradmarket.market.errors import OutOfMemory, Refused, RunnerTimeout
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.rules.mending import UNMEASURED
from gradmarket.market.terms import Digest
from requester.context import Context
from requester.live_states import Image


def evaluate_if_due(
    context: Context, spec: JobSpec, number: int, publication: Publication, parameters: Callable[[], Arrays]
) -> tuple[dict[str, float], str]:
    """(metrics, why there are none): a document or data that cannot be evaluated is the job's fault, and stops it."""
    wanted = spec.evaluation
    due = wanted is not None and ((number + 1) % wanted.every == 0 or number + 1 == spec.rounds)
    if wanted is None or not due:
        return {}, ""
    manifest = parse_manifest(context.blobs.read(publication.manifest))
    partition, arrays = manifest.named(wanted.partition), parameters()
    try:
        return context.modelling.evaluate(context.blobs, publication, arrays, manifest, partition), ""
    except (Refused, OutOfMemory, RunnerTimeout) as error:
        return {}, f"round {number} {UNMEASURED}: {error}"[:1000]


def load_parameter_arrays(context: Context, parameters: Digest) -> Arrays:
    """Returns a blob's arrays, copied into memory, or into a file that is mapped where they are large."""
    with context.blobs.mapped(parameters) as data:
        return Image.of(data, context.settings.data if len(data) > context.settings.merge_memory else None).arrays
