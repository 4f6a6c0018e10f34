"""Checks the blobs that a job names: its requester must be able to read them, or own the unserved rows.

The service reads them for the job: its document becomes public, and its metrics reveal facts about its held-out rows.
"""

from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import ReadyData, ReadyModel
from gradmarket.market.manifest import Manifest
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.terms import Digest
from requester import dataset
from requester.context import Context
from requester.store import blob_needs, visibility
from requester.store.work import RowReader


def check_spec(context: Context, spec: JobSpec, token: str) -> None:
    """Checks the blobs that the job itself names, before any of them is read. Raises JobRefused."""
    named = dict[str, Digest | None]()
    if not isinstance(spec.data, ReadyData):
        named["data.manifest"] = spec.data.manifest
    if not isinstance(spec.model, ReadyModel):
        parts = ("document", "evaluation", "metrics", "parameters")
        named |= {f"model.{part}": getattr(spec.model, part) for part in parts}
    with context.reading() as reader:
        for field, digest in named.items():
            if digest is not None:
                _check_here(context, field, digest)
                _check_read(reader, field, digest, token)


def check_partitions(context: Context, spec: JobSpec, manifest: Manifest, token: str) -> None:
    """Checks the partitions that are stored here, and that rows by which answers are paid are unserved.

    The ready dataset's rows are open to all, even if a requester uploaded them unserved before the service stored them.
    Raises JobRefused.
    """
    if isinstance(spec.data, ReadyData):
        return
    here = {
        part.digest: part.name
        for part in list_training_partitions(manifest, spec)
        if part.link.startswith(dataset.OURS)
    }
    with context.reading() as reader:
        for digest in sorted(visibility.list_restricted_blobs(reader, here)):
            _check_read(reader, f"data.manifest.partitions.{here[digest]}", digest, token)
        if spec.evaluation is not None:
            measured = manifest.named(spec.evaluation.partition).digest
            _check_here(context, "evaluation.partition", measured)
            field, ours = "evaluation.partition", blob_needs.unserved_of(reader, measured, token)
            if not (ours or visibility.load_access(reader, measured).to_requester):
                raise build_absent_refusal(field, measured)
            if spec.by_worth and not blob_needs.is_unserved(reader, measured):
                paid = "whoever reads its rows is paid for training on them"
                raise JobRefused(
                    field, f"{paid}: take rows that nobody has, and PUT {dataset.OURS}{measured}?unserved=true"
                )


def _check_here(context: Context, field: str, digest: Digest) -> None:
    """Raises JobRefused for an absent blob, before its readers are checked: it may come later, unserved,
    from another.
    """
    if not context.blobs.has(digest):
        raise build_absent_refusal(field, digest)


def _check_read(reader: RowReader, field: str, digest: Digest, token: str) -> None:
    if visibility.load_access(reader, digest).to_requester:
        return
    if blob_needs.unserved_of(reader, digest, token):
        openly = f"upload it openly: `gradmarket data upload --open`, or PUT {dataset.OURS}{digest}"
        raise JobRefused(field, f"workers read it, and it is unserved: {openly}")
    raise build_absent_refusal(field, digest)


def build_absent_refusal(field: str, digest: Digest) -> JobRefused:
    """Returns the refusal of an absent blob; an unserved one gets it too, so no caller can probe for others' rows."""
    return JobRefused(field, f"upload it first: PUT {dataset.OURS}{digest}")
