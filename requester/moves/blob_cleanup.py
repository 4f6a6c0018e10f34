"""Deletes blobs that are no longer needed, after the transaction that released and recorded them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.published_update import count_worthwhile_updates
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest
from requester.context import Context
from requester.feature import features_of
from requester.store import blob_needs, jobs, unneeded
from requester.store.answer_kind import answer_kind_of
from requester.store.facts import layout_of
from requester.store.tables import Job, Round, UnneededBlob
from requester.store.work import RowReader, Work

PAYLOAD: Final = unneeded.PAYLOAD
SNAPSHOT: Final = "snapshot"
PARAMETERS: Final = "parameters"
UPDATE: Final = "update"
"""The kind of a blob in the job that released it; selects the rule by which it is dropped: see `_needed`."""
AT_ONCE: Final = 16
"""Blobs dropped in one transaction: a commit takes longer than dropping a file."""
KEPT_NEWEST = 3
"""The number of newest rounds that keep their parameters besides the checkpoints: late workers may need them."""
Spend = Callable[[Work], object]


def spend_nothing(_work: Work) -> None:
    """Charges the uploader nothing."""


def kept_newest(spec: JobSpec) -> int:
    """Returns how many newest rounds keep their parameters: a late answer, and its review, start from its own round's.

    A review may take back earlier rounds, whose tasks start with an overlap from still earlier parameters.
    """
    return max(KEPT_NEWEST, spec.final_after - spec.overlap + 1) + spec.staleness + 2 * spec.overlap


def lock_and_restore_blobs(context: Context, work: Work, blobs: Mapping[Digest, Callable[[], object]]) -> None:
    """Locks blobs for the transaction that refers to them, and stores again those that are missing.

    Another job may have deleted equal content since it was stored. `blobs` maps each digest to a function that stores
    the blob again.
    """
    work.one_at_a_time(*map(_build_lock_name, blobs))
    for digest, keep in blobs.items():
        if not context.blobs.has(digest):
            keep()


def _build_lock_name(digest: Digest) -> str:
    return f"blob {digest}"


def record_uploaded_blobs(context: Context, digests: Iterable[Digest], spend: Spend = spend_nothing) -> None:
    """Keeps blobs that jobs may name; the caller stores them after this, or once more.

    `spend` is called where one of them was not uploaded before; an exception from it keeps them out.
    """
    wanted = sorted(set(digests))
    with context.begin() as work:
        work.one_at_a_time(*map(_build_lock_name, wanted))
        if blob_needs.mark_uploaded(work, wanted, context.clock()):
            spend(work)


def record_unserved_blob(context: Context, digest: Digest, token: str, spend: Spend = spend_nothing) -> None:
    """Keeps a blob for this token's jobs to measure on; the caller stores it after this. No route serves it.

    A blob that is stored already was served to its readers, and still is: no upload hides data that others use.
    `spend`: as above.
    """
    with context.begin() as work:
        work.one_at_a_time(_build_lock_name(digest))
        if not blob_needs.unserved_of(work, digest, token):
            spend(work)
        if context.blobs.has(digest) and not blob_needs.is_unserved(work, digest):
            blob_needs.mark_uploaded(work, [digest], context.clock())
        blob_needs.mark_unserved(work, digest, token, context.clock())


def drop_payload_if_unneeded(context: Context, digest: Digest) -> None:
    """Deletes an accepted payload if no merge waits for it; one that a round made too is released as the round's."""
    drop_blob_if_unneeded(context, digest, partial(needs_payload, digest=digest))


def needs_payload(reader: RowReader, digest: str) -> bool:
    """Returns whether the blob is an answer that a merge waits for, or was made by a round."""
    return blob_needs.needs_payload(reader, digest) or blob_needs.is_made_by_round(reader, digest)


def drop_blob_if_unneeded(context: Context, digest: Digest, needed: Callable[[RowReader], bool]) -> None:
    """Deletes the blob unless `needed`, in a writing transaction, so that no other refers to it in between."""
    with context.begin() as work:
        work.one_at_a_time(_build_lock_name(digest))
        if not (blob_needs.is_uploaded_or_published(work, digest) or needed(work)):
            context.blobs.drop(digest)


def drop_unneeded(context: Context, job_id: str) -> None:
    """Deletes the blobs that the job released, except those needed elsewhere.

    The next call drops the blobs that a killed process left (stages.collect).
    """
    looked_at = AT_ONCE
    while looked_at == AT_ONCE:
        with context.begin() as work:
            rows = unneeded.of_job(work, job_id, AT_ONCE)
            work.one_at_a_time(*(_build_lock_name(row.digest) for row in rows))
            payloads = [row.digest for row in rows if row.kind == PAYLOAD]
            kept = blob_needs.list_needed_blobs(work, [row.digest for row in rows], payloads) if rows else ()
            for row in rows:
                if row.digest not in kept and (row.kind == PAYLOAD or not _is_needed(context, row, work)):
                    context.blobs.drop(row.digest)
            unneeded.delete_released_rows(work, rows)
        looked_at = len(rows)


def _is_needed(context: Context, row: UnneededBlob, reader: RowReader) -> bool:
    if row.kind == SNAPSHOT:
        return blob_needs.names_blob(reader, row.digest)
    for feature in features_of(reader):
        if row.kind in feature.blob_kinds:
            return feature.blob_kinds[row.kind](reader, row.digest)
    if row.kind == UPDATE:
        return blob_needs.needs_update(reader, row.digest, row.job_id, row.after)
    every = context.settings.keep_parameters_every
    return blob_needs.needs_parameters(reader, row.digest, row.job_id, row.after, every)


def release_blobs_of_round(work: Work, job: Job, number: int, now: float) -> None:
    """Releases parameters that are neither new nor a checkpoint once a round is merged, and an old update."""
    spec = jobs.load_spec(job)
    old = number - kept_newest(spec)
    earlier = answer_kind_of(work, job).count_earlier_rounds(job)
    last = min(old, number - 1 - earlier) if earlier else old
    row = work.get(Round, (job.id, last))
    unneeded.release_blobs(work, job.id, PARAMETERS, [row.updated if row is not None else None], now, last)
    if spec.downlink.small:
        _release_updates(work, job, old - updates_worth(job), now)


def updates_worth(job: Job) -> int:
    """Returns the number of updates in a row that take fewer bytes than the parameters that they lead to."""
    spec = jobs.load_spec(job)
    return count_worthwhile_updates(layout_of(job), load_codec(spec.downlink.codec)) if spec.downlink.small else 0


def updates_over(work: Work, job: Job, now: float) -> None:
    """Releases all updates of a job that is over: no worker computes from their parameters."""
    latest = jobs.latest_closed(work, job.id)
    if latest is not None and jobs.load_spec(job).downlink.small:
        _release_updates(work, job, latest.number, now, kept_newest(jobs.load_spec(job)) + updates_worth(job) + 1)


def _release_updates(work: Work, job: Job, through: int, now: float, count: int = 1) -> None:
    old = blob_needs.list_updates_between(work, job.id, through - count, through)
    unneeded.release_blobs(work, job.id, UPDATE, old, now, through)
