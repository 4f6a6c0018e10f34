"""Snapshots of optimizer states, taken beside the rounds; blobs before the oldest needed snapshot are collected."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import Digest, JobState, RoundState
from requester.context import Context
from requester.feature import features_of
from requester.live_states import LiveState, Version
from requester.moves import blob_cleanup, replay
from requester.store import jobs, merges, tasks, unneeded
from requester.store.locks import lock_row
from requester.store.review import is_reviewed, review_of
from requester.store.tables import Job, Round
from requester.store.work import RowReader

SMALL: Final = 2**16
"""Bytes up to which a state is stored at every round: that of an optimizer without memory."""


def is_snapshot_due(context: Context, state: LiveState) -> bool:
    """Returns whether the state, as it is after the newest merge, should be stored now."""
    rounds, seconds = state.version.round - 1 - state.snapshot, time.monotonic() - state.snapshot_at
    return state.memory.length <= SMALL or _is_snapshot_old(context, rounds, seconds)


def _is_snapshot_old(context: Context, rounds: int, seconds: float) -> bool:
    return rounds >= context.settings.snapshot_rounds or seconds >= context.settings.snapshot_s


def is_memory_due(context: Context, job_id: str, number: int) -> bool:
    """Returns whether the memory should be stored now that round `number` is merged, which left no state here."""
    with context.reading() as reader:
        newest, job = merges.newest_snapshot(reader, job_id, number), reader.get_one(Job, job_id)
        last, at = (newest.number, newest.closed_at) if newest else (-1, None)
        return _is_snapshot_old(context, number - last, context.clock() - (at or job.created_at))


def store_snapshot(context: Context, job_id: str, state: LiveState) -> None:
    """Stores the optimizer's state after the round before the state's, as `keep` does."""
    number = state.version.round - 1
    if store_snapshot_of(
        context, job_id, number, state.version.closed_at, partial(replay.store_image, context.blobs, state.memory)
    ):
        state.snapshot, state.snapshot_at = number, time.monotonic()


def store_snapshot_of(
    context: Context, job_id: str, number: int, closed_at: float | None, store: Callable[[], Digest]
) -> bool:
    """Stores the optimizer's state after a round, and collects the blobs that no replay needs then.

    Drops the state where that round was taken back meanwhile, or the job ended before it was finished.
    """
    digest = store()
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        row = work.get_one(Round, (job_id, number))
        stands = row.state == RoundState.CLOSED and row.closed_at == closed_at
        stands = stands and (job.ended_at is None or job.state == JobState.FINISHED)
        if stands:
            blob_cleanup.lock_and_restore_blobs(context, work, {digest: store})
            row.optimizer_state = digest
        else:
            unneeded.release_blobs(work, job_id, blob_cleanup.SNAPSHOT, [digest], context.clock())
    collect_replay_blobs(context, job_id)
    return stands


def store_last_state(context: Context, job_id: str) -> None:
    """Stores the optimizer's state after a finished job's last round, from which another job may go on.

    Skips a job whose replay inputs are damaged or gone: nothing else depends on it any more.
    """
    with context.reading() as reader:
        job, newest = reader.get_one(Job, job_id), jobs.latest_closed(reader, job_id)
        if job.state != JobState.FINISHED or newest is None or newest.optimizer_state:
            return
        last = Version(newest.number + 1, Digest(newest.updated or ""), newest.closed_at)
    with suppress(NotFound, Conflict):
        store_snapshot(context, job_id, replay.state_before(context, job_id, last))


def collect_replay_blobs(context: Context, job_id: str) -> None:
    """Deletes payloads and snapshots that no replay needs any more; once the job has ended, all of them but the last
    state of a finished one."""
    with context.begin() as work:
        job = lock_row(work, Job, job_id)
        payloads: list[str] = []
        old: Sequence[Round] = []
        if job.replay_from is not None:
            # payloads that are merged for good, and rounds whose snapshots are older than the one to replay from
            bound, latest = _replayed_from(work, job, job.replay_from), jobs.latest_round(work, job_id)
            over = job.ended_at is not None and (latest is None or bound > latest.number)
            rows = merges.list_snapshot_rounds(work, job_id, bound)
            base = bound - 1 if over else rows[-1].number if rows else -1
            payloads = merges.merged_payloads(work, job, base)
            job.replay_from = None if over else max(job.replay_from, base + 1)
            old = rows if over and job.state != JobState.FINISHED else rows[:-1]
        newest, now = jobs.latest_closed(work, job_id), context.clock()
        oldest = newest.number - blob_cleanup.kept_newest(jobs.load_spec(job)) if newest else -1
        if job.ended_at is not None:
            blob_cleanup.updates_over(work, job, now)
            for feature in features_of(work):
                feature.job_collected(work, job, now)
        unneeded.release_blobs(work, job_id, blob_cleanup.PAYLOAD, payloads, now)
        unneeded.release_blobs(work, job_id, blob_cleanup.SNAPSHOT, [row.optimizer_state for row in old], now)
        unneeded.release_blobs(work, job_id, blob_cleanup.PARAMETERS, [row.updated for row in old], now, oldest)
        for row in old:
            row.optimizer_state = Digest("")
    blob_cleanup.drop_unneeded(context, job_id)


def is_settled(reader: RowReader, job: Job) -> bool:
    """Returns whether nothing of an ended job that is still to be collected can be merged again."""
    if job.ended_at is None or job.replay_from is None:
        return False
    latest = jobs.latest_round(reader, job.id)
    return latest is None or _replayed_from(reader, job, job.replay_from) > latest.number


def _replayed_from(reader: RowReader, job: Job, since: int) -> int:
    """Returns the first round that may have to be merged again: final tasks alone stay merged."""
    bound = find_first_revocable_round(reader, job)
    first = tasks.find_first_accepted_round(reader, job.id, since) if is_reviewed(job) else None
    return bound if first is None else min(bound, first)


def find_first_revocable_round(reader: RowReader, job: Job) -> int:
    """Returns the first round that may still be taken back or changed by a review."""
    latest = jobs.latest_round(reader, job.id)
    if latest is None:
        return 0
    if not is_reviewed(job):
        return latest.number + 1
    first = review_of(reader).find_first_open_round(reader, job.id)
    if (job.ended_at is not None and first is not None) or job.rewind_to is not None:
        return 0
    over = latest.number + 1  # a late answer may be for a round that never opened
    through = over if job.ended_at is not None else latest.number - jobs.load_spec(job).final_after
    return through + 1 if first is None else min(through + 1, first)
