"""Deletes blobs that nobody needs any more, after the transaction that made them unnecessary."""

from collections.abc import Callable, Mapping
from functools import partial

from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest
from gradmarket.requester.context import Context
from gradmarket.requester.store import jobs
from gradmarket.requester.store.tables import Job, Round
from gradmarket.requester.store.work import RowReader, Work

KEPT_NEWEST = 3
"""How many newest rounds keep their parameters besides the checkpoints, since late workers may still need them."""


def kept_newest(spec: JobSpec) -> int:
    """A late answer, and its audit, start from the parameters of its own round.

    With an overlap, an audit may take back earlier rounds, whose tasks start from still earlier parameters.
    """
    return KEPT_NEWEST + spec.staleness + 2 * spec.overlap


def keep_still(context: Context, work: Work, blobs: Mapping[Digest, Callable[[], object]]) -> None:
    """Locks blobs for the transaction that refers to them, and stores again those that are missing.

    Another job may have deleted equal content since it was stored. `blobs` maps each digest to a function that stores
    the blob again.
    """
    work.one_at_a_time(*map(_name, blobs))
    for digest, keep in blobs.items():
        if not context.blobs.has(digest):
            keep()


def _name(digest: Digest) -> str:
    return f"blob {digest}"


def payload(context: Context, digest: Digest) -> None:
    """Deletes an accepted payload if no merge waits for it."""
    drop(context, digest, lambda reader: jobs.needs_payload(reader, digest))


def drop(context: Context, digest: Digest, needed: Callable[[RowReader], bool]) -> None:
    """Deletes the blob if `needed` says no, in a writing transaction, so that nobody refers to it in between."""
    with context.begin() as work:
        work.one_at_a_time(_name(digest))
        if not needed(work):
            context.blobs.drop(digest)


def oldest_kept(spec: JobSpec, number: int) -> int:
    """Returns the first round whose parameters are still kept once round `number` is merged."""
    return number - kept_newest(spec) + 2


def parameters(context: Context, digest: Digest, job_id: str, after: int) -> None:
    """Deletes a round's parameters unless a round after `after`, a checkpoint, a replay or another job needs them."""
    every = context.settings.keep_parameters_every
    drop(context, digest, partial(jobs.needs_parameters, digest=digest, job_id=job_id, after=after, every=every))


def merged(context: Context, job_id: str, number: int) -> None:
    """Deletes parameters that are neither new nor a checkpoint once a round is merged."""
    with context.reading() as reader:
        old = number - kept_newest(jobs.spec(reader.get_one(Job, job_id)))
        row = reader.get(Round, (job_id, old))
        digest = row.updated if row is not None else None
    if digest:
        parameters(context, Digest(digest), job_id, old)
